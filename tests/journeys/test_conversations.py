"""Several turns: what goes on in a conversation, what waits, and what stays apart."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from orchestration_service.cli.client import open_caller
from tests.stage import Stage, bash, calls, open_stage, packed, says, without_figures

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path_factory.mktemp("platform")) as opened:
        yield opened


async def test_the_second_turn_goes_on_where_the_first_ended(stage: Stage) -> None:
    """The workspace is alive, a new file joins it, and the model hears the first turn again, tool results and all."""
    caller = stage.caller
    first_file = await caller.upload("c", "start.tar", packed({"a/kept.txt": "one\n", "a/b/deep.txt": "deep\n"}))
    model = stage.model(bash("echo two >> kept.txt; cat kept.txt; git init -q 2>/dev/null; true"), says("Turn one."), stepping="by_turn")
    first = await model.turn("Write two.", [first_file], conversation="c")
    second_file = await caller.upload("c", "more.tar", packed({"m/more.txt": "more\n"}))
    later = stage.model(calls(("Read", {"file_path": "/workspace/kept.txt"})), says("Turn two."), stepping="by_turn")
    body = later.completion("And now?", [first_file, second_file], conversation="c")
    body["file_history"][0]["current_message_attachment"] = False
    body["is_new_conversation"] = False
    second = await stage.finished(await caller.start(body))
    assert (first.answer, second.answer) == ("Turn one.", "Turn two.")
    assert (first.receipt.began.workspace, second.receipt.began.workspace, second.receipt.turn_number) == ("fresh", "continued", 2)
    heard = later.prompts(0)
    for words in ("Write two.", "echo two >> kept.txt", "one\\ntwo", "Turn one.", "And now?"):
        assert words in heard, words
    files = await stage.archive(second)
    assert files["workspace/kept.txt"] == b"one\ntwo\n"
    assert files["workspace/b/deep.txt"] == b"deep\n"
    assert b"more" in b"".join(content for name, content in files.items() if name.endswith("more.txt"))
    assert second.files["manifest"]["metadata"]["original_file_name"] == "turn-002-manifest.json"


async def test_a_turn_records_its_own_change_only(stage: Stage) -> None:
    model = stage.model(bash("echo x >> log.txt"), says("Added."), stepping="by_turn")
    first = await model.turn("Add.", conversation="own")
    second = await model.turn("Add.", conversation="own")
    patches = [(await stage.content(turn.files["patch"])).decode() for turn in (first, second)]
    assert "new file mode" in patches[0]
    assert "new file mode" not in patches[1]
    assert patches[1].count("\n+x") == 1


async def test_two_messages_at_once_wait_for_each_other(stage: Stage) -> None:
    """The second one says that it waits, then sees what the first has done; nothing of the two is mixed."""
    slow = stage.model(bash("echo first >> order.txt; sleep 1"), says("First."), stepping="by_turn")
    quick = stage.model(bash("cat order.txt; echo second >> order.txt"), says("Second."), stepping="by_turn")
    one = await stage.caller.start(slow.completion("One.", conversation="both"))
    two = await stage.caller.start(quick.completion("Two.", conversation="both"))
    first, second = await asyncio.gather(stage.finished(one), stage.finished(two))
    assert (first.answer, second.answer) == ("First.", "Second.")
    texts = [without_figures(state["result"]["content"][0]["value"]) for state in second.polls]
    assert "Waiting for the previous message of this conversation." in texts
    assert (await stage.archive(second))["workspace/order.txt"] == b"first\nsecond\n"
    assert len(quick.played.received) == 2


async def test_conversations_run_beside_each_other_and_see_nothing_of_each_other(stage: Stage) -> None:
    """Even two users who name their conversations alike."""
    model = stage.model(bash("echo $RANDOM$RANDOM > mine.txt; sleep 1; ls | wc -l"), says("Done."))
    async with open_caller(stage.platform, "bob@example.com") as bob:
        theirs = Stage(stage.platform, bob, stage.models_url, stage._models)
        body = model.completion("Work.", conversation="same")
        ours = await stage.caller.start(model.completion("Work.", conversation="same"))
        other = await bob.start(body)
        mine, bobs = await asyncio.gather(stage.finished(ours), theirs.finished(other))
        assert (mine.receipt.began.workspace, bobs.receipt.began.workspace) == ("fresh", "fresh")
        assert (await stage.archive(mine))["workspace/mine.txt"] != (await theirs.archive(bobs))["workspace/mine.txt"]
    told = [heard for request in model.played.received if "tool_result" in (heard := json.dumps(request.body["messages"]))]
    assert len(told) == 2
    assert all('"content": "1"' in heard for heard in told)


async def test_a_direct_caller_gets_the_answer_in_one_request(stage: Stage) -> None:
    model = stage.model(says("At once."))
    path = f"/instances/{stage.caller.instance_id}/completions"
    answer = await stage.caller.http.post(path, json=model.completion("Say it."))
    assert (answer.status_code, answer.json()["completion"]) == (200, "At once.")


async def test_a_caller_who_leaves_loses_nothing(stage: Stage) -> None:
    """The turn belongs to the service: a connection that is cut while it runs does not end it."""
    model = stage.model(bash("sleep 1; echo done > done.txt"), says("Finished."))
    body = model.completion("Take your time.")
    path = f"/instances/{stage.caller.instance_id}/completions"
    leaving = asyncio.create_task(stage.caller.http.post(path, json=body))
    status = f"/instances/{stage.caller.instance_id}/async-completions/{body['operation_id']}/status"
    while (await stage.caller.http.get(status)).status_code != 200:
        await asyncio.sleep(0.02)
    leaving.cancel()
    turn = await stage.finished(body["operation_id"])
    assert turn.answer == "Finished."
    assert (await stage.archive(turn))["workspace/done.txt"] == b"done\n"
