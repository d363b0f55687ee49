"""The messages of a run as the service keeps and reads them: what a runner may say, and what is made of what it should not."""

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from orchestration_service.operations.model import StoredMessage
from workflow_schemas.delta import Bodies, digest, expand
from workflow_schemas.errors import DeltaError
from workflow_schemas.events import Warned, event_adapter
from workflow_schemas.mailbox import Message
from workflow_schemas.manifest import RunManifest


class Nonsense(Exception):
    """A message of the runner has a shape that the runner never sends."""


@dataclass(frozen=True)
class ModelRequest:
    """A model call as the agent's CLI made it."""

    call_id: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class ModelReply:
    """What goes back to the agent's CLI."""

    status: int
    body: dict[str, Any]
    retry_after: float | None = None
    beside: dict[str, Any] = field(default_factory=dict)
    """What the service notes of the call beside the answer; whoever takes the turn over reads it."""


def stored(message: Message) -> tuple[int, str, bytes]:
    """Return a message as the operation store keeps it."""
    return message.seq, message.kind, json.dumps(message.body, separators=(",", ":")).encode() + b"\n" + message.data


def restored(kept: StoredMessage) -> Message:
    """Return a message the operation store has kept.

    Raises:
        Nonsense: The bytes are not those of a message.
    """
    text, _, data = kept.body.partition(b"\n")
    try:
        return Message.model_validate({"seq": kept.sequence, "kind": kept.kind, "body": json.loads(text), "data": data})
    except ValueError as error:
        raise Nonsense(f"the stored message {kept.sequence} cannot be read ({type(error).__name__})") from error


def checked_event(body: dict[str, Any]) -> dict[str, Any]:
    """Return an event of the sandbox in the shape that readers rely on; one without shape becomes a warning."""
    try:
        return event_adapter.dump_python(event_adapter.validate_python(body), mode="json")  # type: ignore[no-any-return]
    except ValidationError:
        return Warned(message="The sandbox reported something that cannot be read.").model_dump(mode="json")


def read_manifest(body: dict[str, Any], run_id: str) -> RunManifest:
    """Return the manifest of a `final`.

    Raises:
        Nonsense: There is none, or it is that of another run.
    """
    try:
        manifest = RunManifest.model_validate(body.get("manifest"))
    except ValidationError as error:
        raise Nonsense(f"a manifest that cannot be read ({error.error_count()} faults)") from error
    if manifest.run_id != run_id:
        raise Nonsense(f"the manifest of another run, {manifest.run_id!r}")
    return manifest


def read_request(message: Message, bodies: Bodies) -> ModelRequest | str:
    """Return a model request with its body rebuilt, or the call's identifier when its base is not known here.

    Raises:
        Nonsense: It has no shape, or was sent whole and cannot be read.
    """
    call_id, path, headers, announced, base_name = _about(message.body)
    base = bodies.get(base_name) if base_name else b""
    try:
        if base is None:
            raise DeltaError("the base of the request is not known here")
        body = expand(message.data, base)
        if digest(body) != announced:
            raise DeltaError("the request has another hash than announced")
    except DeltaError as error:
        if not base_name:
            raise Nonsense(f"a model request that was sent whole cannot be read ({error})") from error
        return call_id
    bodies.add(body)
    return ModelRequest(call_id, path, headers, body)


def _about(body: dict[str, Any]) -> tuple[str, str, dict[str, str], str, str]:
    headers = body.get("headers")
    words = tuple(body.get(name) for name in ("call_id", "path", "digest", "base"))
    if not all(isinstance(word, str) for word in words) or not isinstance(headers, dict):
        raise Nonsense("a model request without identifier, path, headers or hash")
    call_id, path, announced, base = map(str, words)
    return call_id, path, {str(name): str(value) for name, value in headers.items()}, announced, base
