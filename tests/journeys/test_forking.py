"""A conversation begins with what another one has left."""

import json
import re
from pathlib import Path

import pytest

from orchestration_service.cli.client import open_caller
from orchestration_service.cli.hosting import Platform
from tests.journeys.going_on import INSTANCE, KEY, say, scripted, serve, service, step
from tests.stage import packed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


async def test_a_fork_begins_with_files_and_memory_of_the_other_conversation(tmp_path: Path) -> None:
    """By a code, once, for its user; then both go their own ways, and the fork goes back, by the API, to a turn it took over."""
    model = scripted(
        step("echo one > new.txt", "One."),
        step("cat new.txt; echo two >> new.txt", "Two."),
        step("cat new.txt; echo forked >> new.txt", "Forked."),
    )
    async with serve(model) as endpoint, service(tmp_path, endpoint.base_url) as caller:
        record = await caller.upload("origin", "repo.tar", packed({"r/readme.txt": "hello\n"}))
        early = await say(caller, "/fork", [], "origin")
        await say(caller, "First words.", [record], "origin")
        await say(caller, "Second words.", [], "origin")
        offered = await say(caller, "/fork 3", [], "origin")
        words = re.search(r"`(/fork from \S+)`", offered.answer)
        assert words, offered.answer
        async with open_caller(Platform(str(caller.http.base_url), INSTANCE, KEY, ""), "mallory@example.com") as other:
            stolen = await say(other, words[1], [], "theirs")
        weaker = await say(caller, words[1], [], "weaker", sandbox_profile="custom")
        joined = await say(caller, words[1], [], "fork")
        again = await say(caller, words[1], [], "fork")
        twice = await say(caller, words[1], [], "second fork")
        begun = await say(caller, words[1], [], "origin")
        forked = await say(caller, "Third words.", [], "fork")
        path = f"/instances/{INSTANCE}/conversations/fork"
        shown = (await caller.http.get(path)).json()
        back = await caller.http.post(f"{path}/rewind", json={"turn_number": 2})
        await say(caller, "Fourth words.", [], "fork")
    assert early.status == "Failed"
    assert [turn.status for turn in (stolen, weaker, twice, begun)] == ["Failed"] * 4
    assert "opens no conversation of yours" in stolen.answer
    assert "profile" in weaker.answer
    assert "opens no conversation of yours" in twice.answer
    assert (joined.status, again.status) == ("Completed", "Completed")
    assert "goes on from turn 3" in joined.answer
    assert (forked.told.began.workspace, forked.told.began.from_turn, forked.told.began.memory) == ("restored", 3, "session")
    assert forked.told.turn_number > 3
    assert forked.told.seal
    assert forked.told.seal.builds_on == (2, 3)
    heard = json.dumps(model.received[4].body["messages"])
    assert "First words." in heard
    assert "Second words." in heard
    assert "one\\ntwo" in json.dumps(model.received[5].body["messages"])
    assert [(turn["turn_number"], turn["parent_turn"], turn["is_head"]) for turn in shown["turns"]] == [
        (2, 0, False),
        (3, 2, False),
        (forked.told.turn_number, 3, True),
    ]
    assert (back.status_code, back.json()["head_turn"]) == (200, 2)
    heard = json.dumps(model.received[-1].body["messages"])
    assert "First words." in heard
    assert "Second words." not in heard
    assert re.search(r'"content": "one\b', heard)
    assert "forked" not in heard
    assert "one\\ntwo" not in heard
