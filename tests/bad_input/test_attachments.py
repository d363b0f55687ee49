"""Attachments that are hostile, damaged, empty or large, over the real Context API and into a real sandbox."""

import io
import os
import struct
import tarfile
import zipfile
from collections.abc import AsyncIterator

import anyio
import pytest

from tests.stage import Stage, Turn, bash, open_stage, packed, says, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # the first test waits for all turns


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path_factory.mktemp("platform")) as opened:
        yield opened


LISTING = "find . -type f -not -path './.git/*' | sort > /outputs/listing.txt; sha256sum * 2>/dev/null > /outputs/sums.txt; true"


async def attached(stage: Stage, name: str, content: bytes) -> Turn:
    """Attach one file and let the agent list what it finds."""
    conversation = f"attached-{os.urandom(6).hex()}"
    record = await stage.caller.upload(conversation, name, content)
    return await stage.model(bash(LISTING), says("Listed.")).turn("List.", [record], conversation=conversation)


def zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def encrypted() -> bytes:
    """A zip whose member says that it is encrypted."""
    content = bytearray(zipped({"secret.txt": b"secret"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(mark) + offset
        struct.pack_into("<H", content, at, struct.unpack_from("<H", content, at)[0] | 1)
    return bytes(content)


def bomb() -> bytes:
    """2 GiB of zeros in 2 MiB."""
    target = io.BytesIO()
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("zeros", "w", force_zip64=True) as member,
    ):
        zeros = bytes(16 * 1024 * 1024)
        for _ in range(128):
            member.write(zeros)
    return target.getvalue()


def link_then_file() -> bytes:
    """A tar that makes a link out of the tree and then writes through it."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        link = tarfile.TarInfo("r/out")
        link.type, link.linkname = tarfile.SYMTYPE, "/run/claude-code"
        archive.addfile(link)
        member = tarfile.TarInfo("r/out/generation")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"owned"))
    return target.getvalue()


HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "a damaged zip": ("repo.zip", zipped({"a.txt": b"x" * 5000})[:-30], "damaged"),
    "a damaged tar": ("repo.tar", packed({"a.txt": b"x" * 5000})[:700], "damaged"),
    "an encrypted zip": ("repo.zip", encrypted(), "encrypted"),
    "a bomb": ("repo.zip", bomb(), "unpack to more than"),
    "a member above the tree": ("repo.tar", packed({"r/../../etc/evil": "x"}), "leaves the workspace"),
    "a member with a long name": ("repo.tar", packed({f"r/{'n' * 300}": "x", "r/b": "y"}), "255 bytes"),
    "a file written through a link": ("repo.tar", link_then_file(), "link"),
}


@pytest.fixture(scope="module")
async def refused(stage: Stage) -> dict[str, Turn]:
    return await together(HOSTILE, lambda name: attached(stage, *HOSTILE[name][:2]))


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_archive_ends_the_turn_before_the_agent_starts(refused: dict[str, Turn], name: str) -> None:
    turn = refused[name]
    assert (turn.status, turn.receipt.end_reason) == ("Failed", "input_error")
    assert turn.answer.startswith("The attached files could not be used: ")
    assert HOSTILE[name][2] in turn.answer
    assert turn.receipt.usage.model_calls == 0
    assert "manifest" in turn.files


async def test_an_empty_archive_is_an_empty_workspace(stage: Stage) -> None:
    turn = await attached(stage, "empty.zip", zipped({}))
    assert (turn.status, turn.answer) == ("Completed", "Listed.")


async def test_empty_files_survive_both_ways(stage: Stage) -> None:
    turn = await attached(stage, "repo.zip", zipped({"r/empty.txt": b"", "r/full.txt": b"x"}))
    assert b"./empty.txt" in await stage.content(turn.files["turn-001-listing.txt"])
    assert (await stage.archive(turn))["workspace/empty.txt"] == b""


async def test_a_hundred_megabytes_in_and_out(stage: Stage) -> None:
    """Bytes that no compression shrinks reach the workspace whole; an archive above the limit is left out by name."""
    content = os.urandom(100 * 1024 * 1024)
    archive = await anyio.to_thread.run_sync(packed, {"r/large.bin": content})
    turn = await attached(stage, "large.tar", archive)
    assert turn.status == "Completed", turn.answer
    assert b"large.bin" in await stage.content(turn.files["turn-001-sums.txt"])
    assert "workspace" not in turn.files
    assert any("workspace archive" in remark and "limit" in remark for remark in turn.receipt.remarks)


async def test_two_archives_get_a_folder_each(stage: Stage) -> None:
    caller = stage.caller
    records = [await caller.upload("two", f"{name}.zip", zipped({f"{name}-main/{name}.txt": b"x"})) for name in ("left", "right")]
    turn = await stage.model(bash(LISTING), says("Listed.")).turn("List.", records, conversation="two")
    listing = (await stage.content(turn.files["turn-001-listing.txt"])).decode().split()
    assert listing == ["./left/left.txt", "./right/right.txt"]


async def test_a_record_that_is_gone_is_named(stage: Stage) -> None:
    caller = stage.caller
    record = await caller.upload("deleted", "repo.zip", zipped({"r/a": b"x"}))
    await caller.context.delete_file_record(caller.identity, record.id)
    turn = await stage.model(says("Never.")).turn("Work.", [record], conversation="deleted")
    assert turn.status == "Failed"
    assert "repo.zip" in turn.answer
