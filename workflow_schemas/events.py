"""What a turn tells the people who watch it: numbered activity events.

The names are those of the sandbox module the project started from (progress, device_code, text, tool_start, tool_end,
confirm_request, done, error), and a few more. Events are facts from inside a hostile sandbox: they are shown and stored,
never acted upon.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True)

    seq: int = Field(0, ge=0, description="Position in the turn's event log, from 1; 0 before the log has numbered it.")
    at: float = Field(0.0, description="Seconds since the epoch, by the clock of the place that noticed it.")


class Progress(_Event):
    """A step of the turn was reached."""

    type: Literal["progress"] = "progress"
    step: str = Field(description="Name of the step, such as `open`, `workspace`, `run`, `seal`.")
    message: str = Field("", description="One sentence for people.")


class DeviceCode(_Event):
    """A person has to confirm a sign-in on another device."""

    type: Literal["device_code"] = "device_code"
    code: str = Field(description="Code to type in.")
    url: str = Field(description="Address where the code is typed in.")
    message: str = Field("", description="What the sign-in is for.")


class Text(_Event):
    """The agent said something."""

    type: Literal["text"] = "text"
    content: str = Field(description="Text of the agent, Markdown.")


class ToolStart(_Event):
    """The agent calls a tool."""

    type: Literal["tool_start"] = "tool_start"
    id: str = Field("", description="Identifier of the call; the matching `tool_end` carries the same.")
    name: str = Field(description="Name of the tool.")
    input: dict[str, Any] = Field(default_factory=dict, description="Arguments; long strings are shortened.")


class ToolEnd(_Event):
    """A tool call ended."""

    type: Literal["tool_end"] = "tool_end"
    id: str = Field("", description="Identifier of the call.")
    name: str = Field("", description="Name of the tool.")
    success: bool = Field(description="False when the tool reported an error.")
    output: str = Field("", description="Beginning of what the tool returned.")
    duration_seconds: float = Field(0.0, ge=0, description="Time between start and end, in seconds.")


class ConfirmRequest(_Event):
    """The agent needs a person's consent."""

    type: Literal["confirm_request"] = "confirm_request"
    request_id: str = Field(description="Identifier to answer with.")
    tool_name: str = Field(description="Tool that needs consent.")
    description: str = Field("", description="What would happen.")
    details: dict[str, Any] = Field(default_factory=dict, description="Arguments of the call.")


class ModelCalled(_Event):
    """One call of the model was answered."""

    type: Literal["model_call"] = "model_call"
    call_id: str = Field("", description="Identifier of the call.")
    status: int = Field(200, description="HTTP status of the answer.")
    input_tokens: int = Field(0, ge=0, description="Tokens of the request, caches included.")
    output_tokens: int = Field(0, ge=0, description="Tokens of the answer.")
    duration_seconds: float = Field(0.0, ge=0, description="Time until the answer was complete, in seconds.")


class Warned(_Event):
    """Something is not as the user might expect, and the turn goes on."""

    type: Literal["warning"] = "warning"
    message: str = Field(description="One sentence for people.")


class Done(_Event):
    """The turn ended with a result."""

    type: Literal["done"] = "done"
    session_id: str = Field("", description="Session of the agent SDK, for resuming.")
    turns: int = Field(0, ge=0, description="Model calls of this turn.")


class Failed(_Event):
    """The turn ended without a result."""

    type: Literal["error"] = "error"
    error: str = Field(description="What happened and what to do.")


Event = Annotated[
    Progress | DeviceCode | Text | ToolStart | ToolEnd | ConfirmRequest | ModelCalled | Warned | Done | Failed,
    Field(discriminator="type"),
]
"""Any activity event."""

event_adapter: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads and writes events as JSON."""
