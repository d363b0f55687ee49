"""Events as lines of JSON on standard output, for a caller that reads what an execution printed.

A line is one write of ASCII characters only: whatever text an event carries, it can neither end its line early nor begin another.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

_MAX_DEPTH = 50


class EventType(StrEnum):
    """The names of events, as in `workflow_schemas.events`."""

    PROGRESS = "progress"
    DEVICE_CODE = "device_code"
    TEXT = "text"
    TOOL_START = "tool_start"
    TOOL_END = "tool_end"
    CONFIRM_REQUEST = "confirm_request"
    WARNING = "warning"
    DONE = "done"
    ERROR = "error"


def emit_event(event_type: EventType | str, **fields: object) -> None:
    """Write one event to standard output at once; what JSON does not know is written as text.

    Raises:
        OSError: Nobody reads standard output any more.
    """
    event = {"type": str(event_type), **{name: _plain(value, 0) for name, value in fields.items() if name != "type"}}
    sys.stdout.write(json.dumps(event, ensure_ascii=True, allow_nan=False) + "\n")
    sys.stdout.flush()


def emit_progress(step: str, message: str = "", **fields: object) -> None:
    """Say which step was reached, for example with `model` or `session_id`."""
    emit_event(EventType.PROGRESS, step=step, message=message, **fields)


def emit_text(content: str, **fields: object) -> None:
    """Pass on what the agent said."""
    emit_event(EventType.TEXT, content=content, **fields)


def emit_tool_start(name: str, input: Mapping[str, object] | None = None, **fields: object) -> None:
    """Say that the agent calls a tool."""
    emit_event(EventType.TOOL_START, name=name, input=input or {}, **fields)


def emit_tool_end(name: str, success: bool = True, **fields: object) -> None:
    """Say that a tool call ended."""
    emit_event(EventType.TOOL_END, name=name, success=success, **fields)


def emit_device_code(code: str, url: str, message: str = "", **fields: object) -> None:
    """Ask a person to confirm a sign-in on another device."""
    emit_event(EventType.DEVICE_CODE, code=code, url=url, message=message, **fields)


def emit_confirm_request(
    request_id: str, tool_name: str, description: str = "", details: Mapping[str, object] | None = None, **fields: object
) -> None:
    """Ask a person for consent to a tool call."""
    emit_event(
        EventType.CONFIRM_REQUEST,
        request_id=request_id,
        tool_name=tool_name,
        description=description,
        details=details or {},
        **fields,
    )


def emit_warning(message: str, **fields: object) -> None:
    """Say what is not as the caller might expect, while the work goes on."""
    emit_event(EventType.WARNING, message=message, **fields)


def emit_done(session_id: str, turns: int = 0, **fields: object) -> None:
    """End with a result; `turns` counts the messages of the conversation that were answered."""
    emit_event(EventType.DONE, session_id=session_id, turns=turns, **fields)


def emit_error(error: str, **fields: object) -> None:
    """End without a result; `error` says what happened and what to do next."""
    emit_event(EventType.ERROR, error=error, **fields)


def _plain(value: object, depth: int) -> object:
    """Return the value as JSON can hold it; a number that is none, or a tree without an end, becomes text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)  # not a subclass with habits of its own
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return {str(name): _plain(item, depth + 1) for name, item in value.items()}
        if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
            return [_plain(item, depth + 1) for item in value]
    return str(value)[:1000]
