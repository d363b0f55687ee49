"""What the service itself has of a turn whose sandbox is lost, stored as files of the user.

The workspace is gone with the sandbox, but every event and every word with the model went through the service.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from context_client import ContextApiError, ContextClient, FileRecord
from orchestration_service.collecting import Collected, check_manifest, check_output
from orchestration_service.course import Course
from orchestration_service.errors import SandboxUnavailable, TurnUnreadable
from orchestration_service.letters import ModelRequest
from orchestration_service.progress import describe_tool
from workflow_schemas.manifest import OutputFile, RunManifest
from workflow_schemas.receipt import StoredFile

_TEXT = "text/plain"
_JSON = "application/json"


async def salvage(course: Course, client: ContextClient, manifest: RunManifest) -> Collected:
    """Store the events, the log, the transcript and the manifest of a lost turn, each once, whoever does it.

    Args:
        course: The turn.
        client: Stores files for its user.
        manifest: Says that the sandbox is lost.
    """
    stem = course.planned.plan.output_stem
    events = await course.ledger.events()
    parts: list[tuple[OutputFile, bytes, str]] = [
        _part(f"{stem}-events.jsonl", "events", b"".join(json.dumps(event).encode() + b"\n" for event in events), _TEXT),
        _part(f"{stem}-log.txt", "log", _log(events, manifest).encode("ascii", "backslashreplace"), _TEXT),
    ]
    if (spoken := await asyncio.to_thread(_conversation, course)) is not None:
        parts.append(_part(f"{stem}-conversation.json", "output", spoken, _JSON))
    told = manifest.model_copy(update={"outputs": tuple(output for output, _, _ in parts)})
    name, content = f"{stem}-manifest.json", told.model_dump_json(indent=1).encode()
    files: list[StoredFile] = []
    lost: list[str] = []
    remarks: list[str] = []
    for output, data, kind in [*parts, _part(name, "manifest", content, _JSON)]:
        try:
            record, maybe_twice = await _store(course, client, output.name, data, kind)
        except SandboxUnavailable as error:
            lost.append(f"{output.name}: {error}")
            continue
        if maybe_twice:
            remarks.append(f"{output.name} may have been stored twice: the service was interrupted while it stored the file.")
        checked = check_manifest(course.session, record, told) if output.name == name else check_output(course.session, record, output)
        files.append(await checked)
    return Collected(tuple(files), ("the workspace of this turn: the sandbox is gone", *lost), tuple(remarks))


async def _store(course: Course, client: ContextClient, name: str, content: bytes, kind: str) -> tuple[FileRecord, bool]:
    turn = course.turn

    async def upload() -> dict[str, Any]:
        conversation = turn.request.session_id or turn.operation.operation_id
        try:
            record = await client.upload_conversation_file(
                turn.identity, conversation, turn.request.agent.name, name, content, kind, key=f"{course.run_id} {name}"
            )
        except ContextApiError as error:
            raise SandboxUnavailable(f"it could not be stored: {error}") from error
        return record.model_dump(mode="json") | {"repeatable": record.repeatable}

    done = await course.ledger.once(f"salvage {name}", upload)
    try:
        record = FileRecord.model_validate(done.outcome)
    except ValueError as error:
        raise TurnUnreadable(f"The file {name!r} was stored, and the service's note of it cannot be read.") from error
    return record, done.maybe_twice and not record.repeatable


def _part(name: str, role: Any, content: bytes, kind: str) -> tuple[OutputFile, bytes, str]:
    sha256 = hashlib.sha256(content).hexdigest()
    return OutputFile(name=name, role=role, sha256=sha256, size_bytes=len(content), byte_exact=True), content, kind


def _conversation(course: Course) -> bytes | None:
    """Return the last request of the agent's main loop and the answer to it: the transcript as the service saw it."""
    recent: Sequence[tuple[ModelRequest, dict[str, Any] | None]] = tuple(course.replayed.recent) if course.replayed else ()
    found: dict[str, Any] | None = None
    for request, answer in recent:
        try:
            body = json.loads(request.body)
        except ValueError:
            continue
        if isinstance(body, dict) and isinstance(body.get("messages"), list) and (body.get("tools") or found is None):
            found = {"model": body.get("model"), "messages": body["messages"], "answer": answer}
    return None if found is None else json.dumps(found, indent=1).encode()


def _log(events: Sequence[dict[str, Any]], manifest: RunManifest) -> str:
    return "\n".join([*_lines(events), f"= {manifest.end_reason}: {manifest.detail}", ""])


def _lines(events: Sequence[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        match event.get("type"):
            case "progress":
                yield f"* {event.get('step')}: {_plain(event.get('message'))}"
            case "text":
                yield f"Claude: {_plain(event.get('content'))}"
            case "tool_start":
                yield f"> {_plain(describe_tool(event))}"
            case "tool_end":
                yield f"  {'ok' if event.get('success') else 'failed'}\n{_plain(event.get('output'))}".rstrip()
            case "warning" | "error":
                yield f"! {_plain(event.get('message') or event.get('error'))}"


def _plain(text: Any) -> str:
    """Return text without control characters: the log is read in terminals."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}" for character in str(text or "")
    )
