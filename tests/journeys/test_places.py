"""One conversation, many places: a turn sealed in one kind of sandbox goes on in another."""

import json
from pathlib import Path

import pytest

from tests.journeys.going_on import say, scripted, serve, service, step
from tests.journeys.places import KINDS, Places, kind_of
from tests.stage import packed
from workflow_schemas.receipt import Receipt

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # the first one to ask builds the image


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("first", KINDS)
async def test_a_conversation_goes_on_in_another_kind_of_sandbox(tmp_path: Path, places: Places, first: str, then: str) -> None:
    """Sealed in one, restored in the other with files and the agent's memory; each receipt says where its turn ran."""
    model = scripted(step("echo one > new.txt; chmod 750 new.txt", "One."), step("cat new.txt; stat -c %a new.txt", "Two."))
    told: list[Receipt] = []
    async with serve(model) as endpoint:
        for kind, prompt in ((first, "Write one."), (then, "Go on.")):
            async with places.open(kind) as chosen, service(tmp_path, endpoint.base_url, **chosen) as caller:
                files = [await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))] if not told else []
                ended = await say(caller, prompt, files)
                assert ended.status == "Completed", ended.answer
                told.append(ended.told)
    assert [(receipt.began.workspace, receipt.began.memory) for receipt in told] == [("fresh", "none"), ("restored", "session")]
    assert [kind_of(receipt.sandbox) for receipt in told] == [first, then]
    heard = json.dumps(model.received[-1].body["messages"])
    assert "one\\n750" in heard
    assert "Write one." in heard
