"""A conversation goes on although its sandbox, and the whole service, are gone."""

import json
from pathlib import Path

import pytest

from tests.journeys.going_on import say, scripted, serve, service, step
from tests.stage import packed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

_FIRST = "echo one > new.txt; git init -q; git add -A; git commit -qm one; mkdir -p 'a b/ü'; chmod 750 'a b'; ln -s /etc/x 'a b/ü/link'"
_LATER = "cat new.txt; git log --format=%s; stat -c '%a %N' 'a b' 'a b/ü/link'; echo more >> new.txt"


async def test_a_conversation_survives_its_sandbox_and_its_service(tmp_path: Path) -> None:
    """Restored in another sandbox by another service, then continued alive, then lost memory told, then refused."""
    model = scripted(step(_FIRST, "One is written."), step(_LATER, "Two."), step(_LATER, "Three."), step(_LATER, "Four."))
    async with serve(model) as endpoint:
        async with service(tmp_path, endpoint.base_url) as caller:
            record = await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))
            first = await say(caller, "Write one.", [record])
        async with service(tmp_path, endpoint.base_url) as caller:
            second = await say(caller, "Go on.", [])
            third = await say(caller, "Go on.", [])
            refused = await say(caller, "Go on.", [], sandbox_profile="custom")
    assert first.receipt
    assert second.receipt
    assert third.receipt
    began = [receipt.began for receipt in (first.receipt, second.receipt, third.receipt)]
    assert [(item.workspace, item.from_turn, item.memory) for item in began] == [
        ("fresh", 0, "none"),
        ("restored", 1, "session"),
        ("continued", 2, "session"),
    ]
    assert first.receipt.seal
    assert second.receipt.seal
    assert third.receipt.seal
    assert second.receipt.seal.builds_on == (1,)
    assert second.receipt.seal.new_bytes < first.receipt.seal.new_bytes
    heard = json.dumps(model.received[3].body["messages"], ensure_ascii=False)
    assert "Write one." in heard
    assert "One is written." in heard
    assert "one\\n750 'a b'" in heard.replace("one\\none\\n", "one\\n"), "files, history, modes and names are those of the first turn"
    assert "'a b/ü/link' -> '/etc/x'" in heard
    assert refused.status == "Failed"
    assert "never changes" in refused.answer
    assert len(model.received) == 6, "nothing was executed for the refused turn"


_MAPPED = """python3 - <<'END'
import mmap
with open("mapped.bin", "r+b") as file:
    page = mmap.mmap(file.fileno(), 0)
    page[0]  # read first: the page is then writable without a fault, and no time is noted
    page[0:7] = b"changed"
    page.close()
END"""


async def test_a_change_that_no_time_stamp_shows_is_sealed(tmp_path: Path) -> None:
    """The second turn goes on in the living sandbox and writes through a map; the third, in another sandbox, has what it wrote."""
    first = "head -c 9000 /dev/zero | tr '\\0' x | tee kept.bin > mapped.bin"
    model = scripted(step(first, "Made."), step(_MAPPED, "Changed."), step("head -c 9 mapped.bin kept.bin", "Read."))
    async with serve(model) as endpoint:
        async with service(tmp_path, endpoint.base_url) as caller:
            record = await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))
            await say(caller, "Make two files.", [record])
            second = await say(caller, "Change one.", [])
        async with service(tmp_path, endpoint.base_url) as caller:
            third = await say(caller, "Read them.", [])
    assert (second.told.began.workspace, third.told.began.workspace) == ("continued", "restored")
    heard = json.dumps(model.received[-1].body["messages"])
    assert "changedxx" in heard
    assert "xxxxxxxxx" in heard


async def test_without_a_seal_the_agent_gets_the_words_and_both_sides_are_told(tmp_path: Path) -> None:
    """With persistence off, the next turn starts with the files anew and the conversation as text."""
    model = scripted(step("echo one > new.txt", "One."), step("ls", "Two."))
    async with serve(model) as endpoint, service(tmp_path, endpoint.base_url) as caller:
        record = await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))
        first = await say(caller, "Write one.", [record], workspace_persistence_mode="none")
        second = await say(caller, "Go on.", [], workspace_persistence_mode="none")
    assert first.receipt
    assert second.receipt
    assert first.receipt.seal is None
    assert (second.receipt.began.workspace, second.receipt.began.memory) == ("fresh", "history")
    system = json.dumps(model.received[-1].body["system"])
    assert "One is written." in system
    assert "You do not remember these messages yourself" in system


async def test_rewinding_takes_files_and_memory_back_together(tmp_path: Path) -> None:
    """After `/rewind 1` the next turn knows nothing of turn 2; a turn that is not there is refused with those that are."""
    model = scripted(step("echo one > new.txt", "One."), step("echo two > new.txt", "Two."), step("cat new.txt", "Three."))
    async with serve(model) as endpoint, service(tmp_path, endpoint.base_url) as caller:
        record = await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))
        await say(caller, "First words.", [record])
        await say(caller, "Second words.", [])
        nowhere = await say(caller, "/rewind 7", [])
        back = await say(caller, "/rewind 1", [])
        await say(caller, "Third words.", [])
    assert nowhere.status == "Failed"
    assert "one of: 1, 2" in nowhere.answer
    assert back.status == "Completed"
    heard = json.dumps(model.received[-1].body["messages"])
    assert "First words." in heard
    assert "Second words." not in heard
