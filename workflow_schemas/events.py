"""What a turn tells the people who watch it: numbered activity events.

The names are those of the sandbox module the project started from (progress, device_code, text, tool_start, tool_end,
confirm_request, done, error), and a few more. Events are facts from inside a hostile sandbox: they are shown and stored,
never acted upon.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from workflow_schemas.platform_response import WireText, well_formed

_MAX_DEPTH = 20


def _writable(value: Any, depth: int = 0) -> Any:
    """Return JSON that can be written as UTF-8: the CLI cuts texts in the middle of a character, and nesting has an end."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {well_formed(str(name)): _writable(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(inner, depth + 1) for inner in value]
    return well_formed(value)


Arguments = Annotated[dict[str, Any], BeforeValidator(_writable)]
"""Arguments of a tool call, made fit for UTF-8."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True)

    seq: int = Field(0, ge=0, description="Position in the turn's event log, from 1; 0 before the log has numbered it.")
    at: float = Field(0.0, description="Seconds since the epoch, by the clock of the place that noticed it.")


class Progress(_Event):
    """A step of the turn was reached."""

    type: Literal["progress"] = "progress"
    step: WireText = Field(description="Name of the step, such as `open`, `workspace`, `run`, `seal`.")
    message: WireText = Field("", description="One sentence for people.")


class DeviceCode(_Event):
    """A person has to confirm a sign-in on another device."""

    type: Literal["device_code"] = "device_code"
    code: WireText = Field(description="Code to type in.")
    url: WireText = Field(description="Address where the code is typed in.")
    message: WireText = Field("", description="What the sign-in is for.")


class Text(_Event):
    """The agent said something."""

    type: Literal["text"] = "text"
    content: WireText = Field(description="Text of the agent, Markdown.")


class ToolStart(_Event):
    """The agent calls a tool."""

    type: Literal["tool_start"] = "tool_start"
    id: WireText = Field("", description="Identifier of the call; the matching `tool_end` carries the same.")
    parent_id: WireText = Field("", description="Call of the main thread that started the subagent calling here; empty in the main thread.")
    name: WireText = Field(description="Name of the tool.")
    input: Arguments = Field(default_factory=dict, description="Arguments; long strings are shortened.")


class ToolEnd(_Event):
    """A tool call ended."""

    type: Literal["tool_end"] = "tool_end"
    id: WireText = Field("", description="Identifier of the call.")
    parent_id: WireText = Field("", description="As in the matching `tool_start`.")
    name: WireText = Field("", description="Name of the tool.")
    success: bool = Field(description="False when the tool reported an error.")
    output: WireText = Field("", description="Beginning of what the tool returned.")
    duration_seconds: float = Field(0.0, ge=0, description="Time between start and end, in seconds.")


class ConfirmRequest(_Event):
    """The agent needs a person's consent."""

    type: Literal["confirm_request"] = "confirm_request"
    request_id: WireText = Field(description="Identifier to answer with.")
    tool_name: WireText = Field(description="Tool that needs consent.")
    description: WireText = Field("", description="What would happen.")
    details: Arguments = Field(default_factory=dict, description="Arguments of the call.")


class ModelCalled(_Event):
    """One call of the model was answered."""

    type: Literal["model_call"] = "model_call"
    call_id: WireText = Field("", description="Identifier of the call.")
    model: WireText = Field("", description="Model that was asked last: the main one, that for small tasks, or one to fall back on.")
    status: int = Field(200, description="HTTP status of the answer.")
    input_tokens: int = Field(0, ge=0, description="Tokens of the request, caches included.")
    output_tokens: int = Field(0, ge=0, description="Tokens of the answer.")
    duration_seconds: float = Field(0.0, ge=0, description="Time until the answer was complete, in seconds.")


class Warned(_Event):
    """Something is not as the user might expect, and the turn goes on."""

    type: Literal["warning"] = "warning"
    message: WireText = Field(description="One sentence for people.")


class Done(_Event):
    """The turn ended with a result."""

    type: Literal["done"] = "done"
    session_id: WireText = Field("", description="Session of the agent SDK, for resuming.")
    turns: int = Field(0, ge=0, description="Model calls of this turn.")


class Failed(_Event):
    """The turn ended without a result."""

    type: Literal["error"] = "error"
    error: WireText = Field(description="What happened and what to do.")


Event = Annotated[
    Progress | DeviceCode | Text | ToolStart | ToolEnd | ConfirmRequest | ModelCalled | Warned | Done | Failed,
    Field(discriminator="type"),
]
"""Any activity event."""

event_adapter: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads and writes events as JSON."""
