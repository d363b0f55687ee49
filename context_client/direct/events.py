"""Events as they arrive from a sandbox: read line by line, bounded, and never acted upon.

The words are those of `docs/events.md`. This library stands beside the one that defines them for both ends of the mailbox, so it has
models of its own; a test holds the two together.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is no event."""

MAX_TEXT_CHARS = 1024 * 1024
"""A longer text of an event is cut."""

_MAX_DEPTH = 20
_MAX_ITEMS = 1000
_MAX_COUNT = 10**12


def _text(value: Any) -> Any:
    """Cut what is too long and replace halves of surrogate pairs, which no UTF-8 can hold."""
    if not isinstance(value, str):
        return value
    cut = value if len(value) <= MAX_TEXT_CHARS else value[:MAX_TEXT_CHARS] + "…"
    return cut.encode("utf-8", "replace").decode()


def _tree(value: Any, depth: int = 0) -> Any:
    """Bound a tree of JSON in depth and breadth."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {_text(name): _tree(value[name], depth + 1) for name in list(value)[:_MAX_ITEMS]}
    if isinstance(value, list):
        return [_tree(item, depth + 1) for item in value[:_MAX_ITEMS]]
    return _text(value)


Words = Annotated[str, BeforeValidator(_text)]
"""Text from a sandbox, bounded and well formed."""

Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
"""A number of things."""

Tree = Annotated[dict[str, Any], BeforeValidator(_tree)]
"""A JSON object from a sandbox, bounded."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True)


class Progress(_Event):
    """A step was reached."""

    type: Literal["progress"] = "progress"
    step: Words = Field(description="Name of the step, such as `wall`, `model`, `session`, `run`.")
    message: Words = Field("", description="One sentence for people.")
    model: Words = Field("", description="Model that is asked, where the step tells it.")
    session_id: Words = Field("", description="Session of the agent that goes on, where the step tells it.")


class DeviceCode(_Event):
    """A person has to confirm a sign-in on another device; the call goes on when that is done."""

    type: Literal["device_code"] = "device_code"
    code: Words = Field(description="Code to type in.")
    url: Words = Field(description="Address where the code is typed in; told by a sandbox, so show it and do not open it unasked.")
    message: Words = Field("", description="What the sign-in is for.")


class Text(_Event):
    """The agent said something."""

    type: Literal["text"] = "text"
    content: Words = Field(description="Text of the agent, Markdown.")


class ToolStart(_Event):
    """The agent calls a tool."""

    type: Literal["tool_start"] = "tool_start"
    id: Words = Field("", description="Identifier of the call; the matching `tool_end` carries the same.")
    parent_id: Words = Field("", description="Call that started the subagent calling here; empty in the main thread.")
    name: Words = Field(description="Name of the tool.")
    input: Tree = Field(default_factory=dict, description="Arguments; long strings are shortened.")


class ToolEnd(_Event):
    """A tool call ended."""

    type: Literal["tool_end"] = "tool_end"
    id: Words = Field("", description="Identifier of the call.")
    parent_id: Words = Field("", description="As in the matching `tool_start`.")
    name: Words = Field("", description="Name of the tool.")
    success: bool = Field(description="False when the tool reported an error.")
    output: Words = Field("", description="Beginning of what the tool returned.")
    duration_seconds: float = Field(0.0, ge=0, allow_inf_nan=False, description="Time between start and end, in seconds.")


class ConfirmRequest(_Event):
    """The agent needs a person's consent."""

    type: Literal["confirm_request"] = "confirm_request"
    request_id: Words = Field(description="Identifier to answer with.")
    tool_name: Words = Field(description="Tool that needs consent.")
    description: Words = Field("", description="What would happen.")
    details: Tree = Field(default_factory=dict, description="Arguments of the call.")


class Warned(_Event):
    """Something is not as the user might expect, and the call goes on."""

    type: Literal["warning"] = "warning"
    message: Words = Field(description="One sentence for people.")


class Replaced(_Event):
    """The sandbox is another one than at the last call of this session: its files are gone.

    Told by the proxy, before the first event of the call; no sandbox can make one.
    """

    type: Literal["replaced"] = "replaced"
    remembered: bool = Field(description="True when the agent remembers the conversation all the same, because the proxy has kept it.")
    message: Words = Field(description="One sentence for people.")


class Done(_Event):
    """The call ended with a result; always the last event."""

    type: Literal["done"] = "done"
    session_id: Words = Field("", description="Session of the agent, for people who look for it in a log.")
    turns: Count = Field(0, description="Messages of this conversation that were answered.")
    team: Words = Field("", description="Whose conversation it is.")
    model_calls: Count = Field(0, description="Calls of the model for this message.")
    usage: Tree = Field(default_factory=dict, description="Tokens and costs of this message, as the agent tells them.")


class Failed(_Event):
    """The call ended without a result; always the last event."""

    type: Literal["error"] = "error"
    error: Words = Field(description="What happened and what to do.")
    end_reason: Words = Field("", description="What ended the agent's work, such as `deadline` or `stopped`; empty if it had not begun.")
    session_id: Words = Field("", description="Session of the agent; the next message goes on with it.")


SandboxEvent = Annotated[
    Progress | DeviceCode | Text | ToolStart | ToolEnd | ConfirmRequest | Warned | Done | Failed, Field(discriminator="type")
]
"""Any event that a sandbox can make."""

DirectEvent = Progress | DeviceCode | Text | ToolStart | ToolEnd | ConfirmRequest | Warned | Replaced | Done | Failed
"""Any event of a call."""

_ADAPTER: TypeAdapter[SandboxEvent] = TypeAdapter(SandboxEvent)


def parse_event(line: str) -> DirectEvent | None:
    """Read one line of a call's output; None when it is no event that this version knows.

    Args:
        line: Hostile text, without its end.
    """
    if len(line) > MAX_LINE_BYTES or not line.startswith("{"):
        return None
    try:
        return _ADAPTER.validate_python(json.loads(line, parse_constant=_refuse))
    except (ValidationError, ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
