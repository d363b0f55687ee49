"""Turns the outputs of a run into checked file records of the user.

The runner's manifest says what should be there, with hashes; the platform's records say what is. Text may have been re-encoded on the
way (contract: context API §4.4), archives may not. Nothing that is missing or different is passed over in silence.
"""

import asyncio
import hashlib
from dataclasses import dataclass

from context_client import FileRecord
from orchestration_service.errors import SandboxUnavailable
from orchestration_service.sessions import Session
from workflow_schemas.manifest import OutputFile, RunManifest
from workflow_schemas.receipt import StoredFile

_AT_ONCE = 4


@dataclass(frozen=True)
class Collected:
    """The file records of a turn, and what did not survive."""

    files: tuple[StoredFile, ...]
    lost: tuple[str, ...]


async def collect(session: Session, manifest: RunManifest, output_stem: str) -> Collected:
    """Fetch the outputs once and check each against the manifest.

    Raises:
        SandboxUnavailable: The Context API did not hand the outputs over.
    """
    fetched = await session.fetch()
    expected = {output.name: output for output in manifest.outputs}
    manifest_name = f"{output_stem}-manifest.json"
    gate = asyncio.Semaphore(_AT_ONCE)

    async def check(record: FileRecord) -> StoredFile:
        async with gate:
            return await _check(session, record, expected.get(record.file_name), is_manifest=record.file_name == manifest_name)

    files = await asyncio.gather(*(check(record) for record in fetched.records if record.file_name.startswith(output_stem)))
    found = {file.name for file in files}
    refused = {path.lstrip("/") for path in fetched.refused}
    lost = [f"{name}: {'refused by the platform' if name in refused else 'did not arrive'}" for name in expected if name not in found]
    lost += [f"{file.name}: stored with other content than the runner wrote" for file in files if file.integrity == "mismatch"]
    order = list(expected)
    return Collected(
        files=tuple(sorted(files, key=lambda file: order.index(file.name) if file.name in expected else len(order))),
        lost=tuple(lost),
    )


async def _check(session: Session, record: FileRecord, output: OutputFile | None, *, is_manifest: bool) -> StoredFile:
    try:
        content = await session.content(record.id)
    except SandboxUnavailable:
        content = None
    sha256 = "" if content is None else await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())
    integrity = "mismatch"
    if is_manifest and content is not None:
        integrity = "exact"
    elif output is None:
        integrity = "unlisted"
    elif output.sha256 == sha256:
        integrity = "exact"
    elif content is not None and not output.byte_exact:
        integrity = "re-encoded"
    return StoredFile.model_validate(
        {
            "file_id": record.id,
            "file_object_id": record.file_object_id,
            "file_path": record.file_path,
            "content_type": record.content_type,
            "name": record.file_name,
            "role": "manifest" if is_manifest else output.role if output else "output",
            "size_bytes": len(content) if content is not None else record.file_size_bytes,
            "sha256": sha256,
            "integrity": integrity,
        }
    )
