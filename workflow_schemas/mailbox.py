"""The mailbox between the service and the runner: numbered messages, carried by repeated exchanges over `executeCode`.

An exchange says "here are my messages from number n on, I have yours up to k; give me yours, wait up to t seconds if there
are none". Each side stores a message before acting on it and skips numbers it has; so an exchange may be repeated, lost or cut
at any point without losing or doubling anything. See docs/decisions/0001.

On the wire a frame is one line of ASCII: `FLLM1` + encoding letter + `:` + text. The text is base85 (`A`) or, above 64 KiB, base64
(`B`, faster in Python) of a Zstandard frame, compressed against words that both ends know; it holds the header's length (4 bytes,
big-endian), the header as JSON, and the attachments.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workflow_schemas.delta import MAX_BODY_BYTES, compress, expand
from workflow_schemas.errors import DeltaError, FrameError

MAX_PART_BYTES = 1024 * 1024
"""An attachment above this size travels as `part` messages before the message it belongs to."""

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Messages of one exchange stop before their attachments exceed this size; the rest goes with the next one."""

MAX_LINE_CHARACTERS = 128 * 1024 * 1024
"""A frame above this length is refused before anything of it is decoded."""

CALL_HEADER = "x-model-call"
"""Header of the gateway's answers, with the call's identifier; what lacks it is no answer, or comes from somebody in between."""

_MARK = "FLLM1"
_BASE64_FROM_BYTES = 64 * 1024
_PRIMER = (
    b'{"run_id":"","generation":"","wait_seconds":20.0,"status":"superseded","status":"unknown_run","detail":"","more":true,"m":[],"ack":'
    b'{"generation":"","m":[[1,"event",{"seq":1,"at":17,"type":"progress","step":"workspace","message":""},0],[1,"event",{"seq":1,"at":17,'
    b'"type":"text","content":""},0],[1,"event",{"seq":1,"at":17,"type":"tool_start","id":"toolu_01","name":"Bash","input":{"command":"",'
    b'"description":"","file_path":"/workspace/","old_string":"","new_string":"","pattern":""}},0],[1,"event",{"seq":1,"at":17,"type":'
    b'"tool_end","id":"toolu_01","name":"Read","success":true,"output":"","duration_seconds":0.0},0],[1,"part",{},1048576],[1,"model_answer"'
    b',{"call_id":"","status":200,"retry_after":1.0},0]],"ack":1,"m":[[1,"model_request",{"call_id":"","path":"/v1/messages","headers":'
    b'{"anthropic-beta":"claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27","anthropic-version":'
    b'"2023-06-01"},"digest":"","base":""},'
)
"""Words that frames are made of, known to both ends and never sent: most frames are short. It belongs to the format, so its bytes stay."""

_HEADER_BYTES = 200
"""What a message costs beside its body and attachment, generously."""

Kind = Literal[
    # service → runner
    "start",  # body: {"plan": TurnPlan}
    "model_answer",  # body: {"call_id", "status", "retry_after"?}, data: compressed message or error, base = the request
    "resend",  # body: {"call_id"}: the base of a request is not known here, send it whole
    "model_access",  # body: {"url", "token"}: the gateway for model calls from now on; an empty url for the mailbox alone
    "say",  # body: {"text"}: a message for the agent in the middle of its work
    "stop",  # body: {"reason": EndReason, "detail"}: end the run and seal it
    "release",  # body: {}: outputs are collected, the run may be forgotten
    # runner → service
    "model_request",  # body: {"call_id", "path", "headers", "digest", "base", "stream"}, data: compressed request
    "event",  # body: an activity event
    "final",  # body: {"manifest": RunManifest}
    # both
    "part",  # data: a piece of the next message's attachment
]

URGENT: frozenset[str] = frozenset({"model_request", "final"})
"""Kinds of the runner that wake a waiting exchange at once; events ride along or follow after a moment."""


class Message(BaseModel):
    """One numbered message."""

    model_config = ConfigDict(frozen=True)

    seq: int = Field(ge=1, description="Number in its direction, from 1, without gaps.")
    kind: Kind = Field(description="What the message is.")
    body: dict[str, Any] = Field(default_factory=dict, description="Content as JSON.")
    data: bytes = Field(b"", description="Attachment.")


class Exchange(BaseModel):
    """What the service says in one exchange."""

    model_config = ConfigDict(frozen=True)

    run_id: str = Field(description="Run the mailbox belongs to.")
    generation: str = Field("", description="Sandbox the service believes to talk to; empty on first contact.")
    ack: int = Field(0, ge=0, description="Highest number of the runner's messages that the service has stored.")
    messages: tuple[Message, ...] = Field((), description="Messages of the service the runner may not have.")
    wait_seconds: float = Field(0.0, ge=0, le=60, description="How long to wait when the runner has nothing to say.")


class Reply(BaseModel):
    """What the runner says in one exchange."""

    model_config = ConfigDict(frozen=True)

    generation: str = Field(description="Marker of this sandbox; made once when the runner first starts in it.")
    status: Literal["ok", "superseded", "unknown_run", "wrong_generation", "busy", "refused"] = Field(
        "ok",
        description="`superseded`: a newer exchange took over the wait. `unknown_run`: nothing is known here about the run and no "
        "`start` came with it. `wrong_generation`: this is another sandbox. `busy`: another run is active. `refused`: see detail.",
    )
    detail: str = Field("", description="More about a status that is not `ok`.")
    active_run: str = Field("", description="With `busy`: the run that is active; a `release` of it makes room.")
    ack: int = Field(0, ge=0, description="Highest number of the service's messages that the runner has stored.")
    messages: tuple[Message, ...] = Field((), description="Messages of the runner after the acknowledged number.")
    more: bool = Field(False, description="True when further messages are waiting for the next exchange.")


_Frame = TypeVar("_Frame", Exchange, Reply)


def encode(frame: Exchange | Reply) -> str:
    """Turn an exchange or a reply into one line of ASCII without quotes, backslashes or line breaks."""
    attachments = [message.data for message in frame.messages]
    header = frame.model_dump(mode="json", exclude={"messages"}, exclude_defaults=True)
    header["m"] = [[message.seq, message.kind, message.body, len(message.data)] for message in frame.messages]
    text = json.dumps(header, separators=(",", ":")).encode()
    packed = compress(len(text).to_bytes(4, "big") + text + b"".join(attachments), _PRIMER)
    if len(packed) >= _BASE64_FROM_BYTES:
        return f"{_MARK}B:{base64.b64encode(packed).decode()}"
    return f"{_MARK}A:{base64.b85encode(packed).decode()}"


def decode_exchange(line: str) -> Exchange:
    """Read a frame of the service.

    Raises:
        FrameError: The line is not a frame of an exchange.
    """
    return _decode(line, Exchange)


def decode_reply(line: str) -> Reply:
    """Read a frame of the runner; `line` may stand among other lines of output.

    Raises:
        FrameError: No line of the text is a frame of a reply.
    """
    for candidate in reversed(line.splitlines()):
        if candidate.startswith(_MARK):
            return _decode(candidate, Reply)
    raise FrameError(f"the runner's answer holds no frame; it begins with {line[:200]!r}")


def _decode(line: str, model: type[_Frame]) -> _Frame:
    if len(line) > MAX_LINE_CHARACTERS:
        raise FrameError(f"a frame of {len(line)} characters is above the limit of {MAX_LINE_CHARACTERS}")
    mark, _, text = line.strip().partition(":")
    try:
        packed = {f"{_MARK}A": base64.b85decode, f"{_MARK}B": _from_base64}[mark](text)
        plain = expand(packed, _PRIMER)
        length = int.from_bytes(plain[:4], "big")
        header = json.loads(plain[4 : 4 + length])
        messages, offset = [], 4 + length
        for seq, kind, body, size in header.pop("m"):
            if type(size) is not int or size < 0:
                raise FrameError("a frame announces an attachment of no size")
            messages.append(Message(seq=seq, kind=kind, body=body, data=plain[offset : offset + size]))
            offset += size
        if offset != len(plain):
            raise FrameError("a frame's attachments do not have the announced sizes")
        return model(messages=tuple(messages), **header)
    except _NONSENSE as error:
        raise FrameError(f"not a frame of the mailbox: {type(error).__name__}: {str(error)[:300]}") from error


_NONSENSE = (KeyError, ValueError, TypeError, AttributeError, RecursionError, binascii.Error, DeltaError, ValidationError)
"""Everything that bytes without sense can cause on their way through the decoder; anything else is a mistake of ours."""


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def split(body: bytes) -> list[bytes]:
    """Cut an attachment into pieces of at most :data:`MAX_PART_BYTES`; one piece, maybe empty, for a small one."""
    return [body[start : start + MAX_PART_BYTES] for start in range(0, len(body), MAX_PART_BYTES)] or [b""]


class Reader:
    """Puts `part` messages together: feed messages in order, get whole ones back."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, message: Message) -> Message | None:
        """Take the next message; return it whole, or None when it was a part.

        Raises:
            FrameError: The pieces of one attachment exceed :data:`workflow_schemas.delta.MAX_BODY_BYTES`.
        """
        self._size += len(message.data)
        if self._size > MAX_BODY_BYTES:
            raise FrameError(f"the parts of a message exceed {MAX_BODY_BYTES} bytes")
        if message.kind == "part":
            self._parts.append(message.data)
            return None
        if self._parts:
            message = message.model_copy(update={"data": b"".join(self._parts) + message.data})
        self._parts, self._size = [], 0
        return message


def fit(messages: Sequence[Message]) -> tuple[list[Message], bool]:
    """Return the messages that go into one frame, and whether some are left for the next one.

    The first message always goes, whatever its size: its attachment is at most a part, and who posts a message bounds its body.
    """
    size = 0
    for index, message in enumerate(messages):
        size += len(message.data) + _HEADER_BYTES + len(json.dumps(message.body, separators=(",", ":")))
        if index and size > MAX_FRAME_BYTES:
            return list(messages[:index]), True
    return list(messages), False
