"""Outputs are fetched once and checked, one by one, against what the runner said."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from context_client import FileRecord
from orchestration_service.collecting import Collected, collect
from orchestration_service.errors import SandboxUnavailable
from orchestration_service.sessions import Fetched, Session
from tests.orchestration_service.turns import manifest, output
from workflow_schemas.manifest import OutputFile, RunManifest

pytestmark = pytest.mark.anyio
STEM = "turn-003"


@dataclass
class Store(Session):
    """The stored files of a turn, as a session hands them over."""

    files: dict[str, bytes | None]
    refused: tuple[str, ...] = ()
    fetches: int = 0
    reading: int = 0
    most: int = field(default=0)

    async def fetch(self, key: str | None = None) -> Fetched:
        self.fetches += 1
        records = tuple(FileRecord(id=f"file-{name}", file_name=name, file_size_bytes=3) for name in self.files)
        return Fetched(records=records, refused=self.refused)

    async def content(self, file_id: str) -> bytes:
        content = self.files[file_id.removeprefix("file-")]
        if content is None:
            raise SandboxUnavailable("cannot be read back")
        return content


def told(*outputs: OutputFile) -> RunManifest:
    return manifest(outputs=[found.model_dump() for found in outputs])


def written(name: str, content: bytes, **more: object) -> OutputFile:
    return output(f"{STEM}-{name}", hashlib.sha256(content).hexdigest(), **more)


async def collected(run: RunManifest, files: dict[str, bytes | None], refused: Sequence[str] = ()) -> Collected:
    whole: dict[str, bytes | None] = {f"{STEM}-{name}": content for name, content in files.items()}
    whole.setdefault(f"{STEM}-manifest.json", run.model_dump_json().encode())
    store = Store(whole, tuple(refused))
    return await collect(store, run, STEM, await store.fetch())


async def test_a_turn_whose_files_are_all_as_written() -> None:
    run = told(written("patch.txt", b"diff", role="patch"), written("workspace.tar", b"tar", role="workspace"))
    found = await collected(run, {"workspace.tar": b"tar", "patch.txt": b"diff"})
    assert [(file.name, file.role, file.integrity) for file in found.files] == [
        (f"{STEM}-patch.txt", "patch", "exact"),
        (f"{STEM}-workspace.tar", "workspace", "exact"),
        (f"{STEM}-manifest.json", "manifest", "exact"),
    ]
    assert found.lost == ()
    assert found.files[0].sha256 == hashlib.sha256(b"diff").hexdigest()
    assert found.files[0].size_bytes == 4


@pytest.mark.parametrize(
    ("expected", "content", "integrity", "lost"),
    [
        (written("a", b"1"), b"2", "mismatch", "other content"),
        (written("a", b"1", byte_exact=False), b"2", "re-encoded", ""),
        (written("a", b"1"), None, "unread", "could not be read back"),
        (written("b", b"1"), b"1", "unlisted", f"{STEM}-b: did not arrive"),
    ],
    ids=["changed", "text", "unreadable", "unknown"],
)
async def test_what_is_not_as_written_is_told(expected: OutputFile, content: bytes | None, integrity: str, lost: str) -> None:
    found = await collected(told(expected), {"a": content})
    file = next(file for file in found.files if file.name == f"{STEM}-a")
    assert file.integrity == integrity
    assert [lost] == [lost for entry in found.lost if lost in entry] if lost else found.lost == ()


@pytest.mark.parametrize("path", ["//{}", "/{}", "{}"])
async def test_refused_and_missing_files_are_told_apart(path: str) -> None:
    run = told(written("a.patch", b"1"), written("b", b"1"))
    found = await collected(run, {}, [path.format(f"{STEM}-a.patch")])
    assert found.lost == (f"{STEM}-a.patch: refused by the platform", f"{STEM}-b: did not arrive")


@pytest.mark.parametrize("content", [b"{}", b"not json", b"\xff", manifest(answer="another").model_dump_json().encode()])
async def test_a_manifest_that_says_something_else_is_a_mismatch(content: bytes) -> None:
    found = await collected(told(), {"manifest.json": content})
    assert [file.integrity for file in found.files] == ["mismatch"]
    assert found.lost == (f"{STEM}-manifest.json: stored with other content than the runner wrote",)


async def test_a_manifest_that_did_not_arrive_is_missed() -> None:
    assert (await collect(Store({}), told(), STEM, Fetched((), ()))).lost == (f"{STEM}-manifest.json: did not arrive",)


async def test_files_of_other_turns_are_left_alone() -> None:
    """The file store may hold inputs, and outputs of a turn whose name begins alike."""
    store = Store(
        {"turn-0031-log.txt": b"", "turn-002-log.txt": b"", "a.zip": b"", f"{STEM}-manifest.json": told().model_dump_json().encode()}
    )
    found = await collect(store, told(), STEM, await store.fetch())
    assert [file.name for file in found.files] == [f"{STEM}-manifest.json"]
    assert store.fetches == 1, "each fetch makes new records"
