"""Turns the outputs of a run into checked file records of the user.

The runner's manifest says what should be there, with hashes; the platform's records say what is. Text may have been re-encoded on the
way (contract: context API §4.4), archives may not. Nothing that is missing or different is passed over in silence.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from context_client import FileRecord
from orchestration_service.errors import SandboxUnavailable
from orchestration_service.sessions import Fetched, Session
from workflow_schemas.manifest import OutputFile, RunManifest
from workflow_schemas.receipt import Integrity, StoredFile

_AT_ONCE = 4


@dataclass(frozen=True)
class Collected:
    """The file records of a turn, and what did not survive."""

    files: tuple[StoredFile, ...]
    lost: tuple[str, ...]
    remarks: tuple[str, ...] = ()


async def collect(session: Session, manifest: RunManifest, output_stem: str, fetched: Fetched) -> Collected:
    """Check each of the outputs that were fetched against the manifest."""
    expected = {output.name: output for output in manifest.outputs}
    manifest_name = f"{output_stem}-manifest.json"
    gate = asyncio.Semaphore(_AT_ONCE)

    async def check(record: FileRecord) -> StoredFile:
        async with gate:
            if record.file_name == manifest_name:
                return await check_manifest(session, record, manifest)
            return await check_output(session, record, expected.get(record.file_name))

    files = await asyncio.gather(*(check(record) for record in fetched.records if record.file_name.startswith(f"{output_stem}-")))
    found = {file.name for file in files}
    refused = {path.lstrip("/") for path in fetched.refused}
    missing = [name for name in (*expected, manifest_name) if name not in found]
    lost = [f"{name}: {'refused by the platform' if name in refused else 'did not arrive'}" for name in missing]
    lost += [f"{file.name}: {_FAULTS[file.integrity]}" for file in files if file.integrity in _FAULTS]
    order = {name: number for number, name in enumerate(expected)}
    return Collected(files=tuple(sorted(files, key=lambda file: (order.get(file.name, len(order)), file.name))), lost=tuple(lost))


_FAULTS: Mapping[Integrity, str] = {
    "mismatch": "stored with other content than the runner wrote",
    "unread": "stored, but it could not be read back for the check",
}


async def check_output(session: Session, record: FileRecord, output: OutputFile | None) -> StoredFile:
    """Read a stored file back and return what is known of it."""
    content = await _content(session, record)
    sha256 = "" if content is None else await asyncio.to_thread(_sha256, content)
    integrity: Integrity = "mismatch"
    if output is None:
        integrity = "unlisted"
    elif content is None:
        integrity = "unread"
    elif output.sha256 == sha256:
        integrity = "exact"
    elif not output.byte_exact:
        integrity = "re-encoded"
    return _stored(record, content, sha256, role=output.role if output else "output", integrity=integrity)


async def check_manifest(session: Session, record: FileRecord, manifest: RunManifest) -> StoredFile:
    """The manifest cannot hold its own hash; it has to say what the runner said through the mailbox."""
    content = await _content(session, record)
    if content is None:
        return _stored(record, None, "", role="manifest", integrity="unread")
    try:
        same = RunManifest.model_validate_json(content) == manifest
    except ValidationError:
        same = False
    sha256 = await asyncio.to_thread(_sha256, content)
    return _stored(record, content, sha256, role="manifest", integrity="exact" if same else "mismatch")


async def _content(session: Session, record: FileRecord) -> bytes | None:
    try:
        return await session.content(record.id)
    except SandboxUnavailable:
        return None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stored(record: FileRecord, content: bytes | None, sha256: str, *, role: str, integrity: Integrity) -> StoredFile:
    return StoredFile(
        file_id=record.id,
        file_object_id=record.file_object_id,
        file_path=record.file_path,
        content_type=record.content_type,
        name=record.file_name,
        role=role,
        size_bytes=max(0, record.file_size_bytes) if content is None else len(content),
        sha256=sha256,
        integrity=integrity,
    )
