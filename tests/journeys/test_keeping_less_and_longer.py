"""What an administrator may choose: keep the difference only, and keep the workspace beyond the conversation."""

import json
import random
from pathlib import Path

import pytest

from orchestration_service.cli.client import open_caller
from orchestration_service.cli.hosting import Platform
from tests.journeys.going_on import INSTANCE, KEY, say, scripted, serve, service, step
from tests.stage import packed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

_REPOSITORY = {
    "r/same.txt": "same\n",
    "r/changed.txt": "before\n",
    "r/gone.txt": "gone\n",
    "r/deep/er/same.txt": "deep\n",
    "r/large.txt": random.Random(7).randbytes(300_000).hex(),
}
_CHANGE = "echo after > changed.txt; rm gone.txt; mkdir new; echo new > new/new.txt; chmod 550 deep/er; mv large.txt 'moved ü.txt'"
_LOOK = "find . -type f | sort; cat changed.txt new/new.txt deep/er/same.txt; stat -c %a deep/er; wc -c 'moved ü.txt'"


async def test_only_the_difference_to_the_attached_files_is_kept(tmp_path: Path) -> None:
    """Sealed without what was attached, restored with it by another service; a file that was replaced is refused in clear words."""
    model = scripted(step(_CHANGE, "Changed."), step(_LOOK, "Seen."), step(_LOOK, "Seen again."))
    changes = {"workspace_persistence_mode": "diff"}
    async with serve(model) as endpoint:
        async with service(tmp_path, endpoint.base_url) as caller:
            record = await caller.upload("going-on", "repo.tar", packed(_REPOSITORY))
            first = await say(caller, "Change it.", [record], **changes)
        async with service(tmp_path, endpoint.base_url) as caller:
            second = await say(caller, "Look.", [], **changes)
        async with service(tmp_path, endpoint.base_url) as caller:
            await caller.upload("going-on", "repo.tar", packed({"r/same.txt": "other\n"}))
            refused = await say(caller, "Look.", [], **changes)
            await caller.upload("going-on", "repo.tar", packed(_REPOSITORY))
            healed = await say(caller, "Look.", [], **changes)
        async with service(tmp_path, endpoint.base_url) as caller:
            newer = await caller.upload("going-on", "repo.tar", packed({"r/same.txt": "newer\n"}))
            replaced = await say(caller, "Look at the newer one.", [newer], **changes)
    assert first.told.remarks == ()
    assert first.told.seal
    assert second.told.seal
    assert first.told.seal.inputs == second.told.seal.inputs == ("repo.tar",)
    assert first.told.seal.new_bytes > 600_000, "a moved file is a difference"
    assert first.told.seal.tree_sha256 == second.told.seal.tree_sha256, "nothing was changed by restoring"
    assert second.told.seal.new_bytes == 0
    assert (second.told.began.workspace, second.told.began.from_turn, second.told.began.memory) == ("restored", 1, "session")
    seen = json.dumps(model.received[3].body["messages"], ensure_ascii=False)
    files = ["./changed.txt", "./deep/er/same.txt", "./moved ü.txt", "./new/new.txt", "./same.txt"]
    assert "\\n".join([*files, "after", "new", "deep", "550", "600000 moved ü.txt"]) in seen
    assert refused.status == "Failed"
    assert "'repo.tar' are not any more what they were" in refused.answer
    assert (healed.status, healed.told.began.from_turn) == ("Completed", 2), healed.answer
    assert replaced.told.seal
    assert (replaced.told.began.from_turn, replaced.told.seal.inputs) == (4, ()), "a replaced file cannot be built upon any more"
    assert replaced.told.seal.new_bytes > 0


async def test_a_small_change_makes_a_small_seal(tmp_path: Path) -> None:
    model = scripted(step("echo after > changed.txt", "Changed."))
    async with serve(model) as endpoint, service(tmp_path, endpoint.base_url) as caller:
        record = await caller.upload("going-on", "repo.tar", packed(_REPOSITORY))
        whole = await say(caller, "Change it.", [record], "going-on")
        record = await caller.upload("other", "repo.tar", packed(_REPOSITORY))
        less = await say(caller, "Change it.", [record], "other", workspace_persistence_mode="diff")
    assert whole.told.seal
    assert less.told.seal
    assert whole.told.seal.tree_sha256 == less.told.seal.tree_sha256
    assert (whole.told.seal.new_bytes > 600_000, less.told.seal.new_bytes) == (True, len("after\n"))


@pytest.mark.parametrize("mode", ["snapshot", "diff"])
async def test_a_new_conversation_begins_with_the_users_last_workspace(tmp_path: Path, mode: str) -> None:
    """Its files and not its memory; both sides are told; another user has nothing of it."""
    model = scripted(step("cat *.txt; pwd >> same.txt; echo one >> new.txt", "One."))
    changes = {"workspace_storage_scope": "user", "workspace_persistence_mode": mode}
    async with serve(model) as endpoint:
        async with service(tmp_path, endpoint.base_url) as caller:
            record = await caller.upload("first", "repo.tar", packed({"r/same.txt": "same\n", "r/readme.txt": "hello\n"}))
            first = await say(caller, "First words.", [record], "first", **changes)
        async with service(tmp_path, endpoint.base_url) as caller:
            record = await caller.upload("second", "repo.tar", packed({"s/other.txt": "not asked for\n"}))
            second = await say(caller, "Second words.", [], "second", **changes)
            third = await say(caller, "Third words.", [], "third", **changes)
            async with open_caller(Platform(str(caller.http.base_url), INSTANCE, KEY, ""), "mallory@example.com") as mallory:
                other = await say(mallory, "Fourth words.", [], "fourth", **changes)
    began = [turn.told.began for turn in (first, second, third, other)]
    assert [(item.workspace, item.from_turn, item.from_conversation, item.memory) for item in began] == [
        ("fresh", 0, "", "none"),
        ("restored", 1, "first", "history"),
        ("restored", 1, "second", "history"),
        ("fresh", 0, "", "history"),
    ]
    assert first.told.remarks == ()
    assert any("another conversation" in remark for remark in second.told.remarks)
    request = model.received[5].body
    assert "in another conversation, which you do not remember" in json.dumps(request["system"])
    heard = json.dumps(request["messages"])
    assert "one\\none\\nhello\\nsame\\n/workspace\\n/workspace" in heard
    assert "First words." not in heard
    assert "Second words." not in heard
