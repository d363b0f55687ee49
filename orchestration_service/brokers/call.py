"""What is asked of a model and what comes back: values, without any I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from workflow_schemas.usage import Usage

JsonObject = dict[str, Any]

Reason = Literal[
    "answered",  # a whole message
    "refused_by_gate",  # the sandbox asked for something it may not have; nothing was sent
    "refused",  # 400, 404, 413, …: the same request will be refused again
    "unauthorized",  # 401, 402, 403: the route's credentials do not work
    "rate_limited",  # 429
    "overloaded",  # 529, 503
    "server_error",  # any other 5xx
    "unreachable",  # no connection
    "no_answer",  # connected, and no byte for too long
    "stalled",  # the stream began and then fell silent
    "cut",  # the connection or the stream ended too early
    "malformed",  # the bytes are no event stream of a message
    "empty",  # a stream without events
    "not_a_model",  # HTML, a redirect, or another kind of server
    "deadline",  # the time for this call was over
]


@dataclass(frozen=True)
class ModelCall:
    """One request of the CLI, exactly as it came out of the sandbox. Everything in it is hostile."""

    body: bytes
    """JSON body."""
    path: str = "/v1/messages"
    """Path, with or without ``?beta=true``."""
    anthropic_version: str = "2023-06-01"
    """Value of the header of that name."""
    anthropic_beta: str | None = None
    """Value of the header of that name."""
    deadline_seconds: float = 600.0
    """Time for the whole call, with all attempts and waits."""
    longest_wait_seconds: float | None = None
    """The longest wait before another attempt; an upstream that asks for more has failed. None for as long as the deadline allows."""


@dataclass(frozen=True)
class ModelAnswer:
    """How a call ended. A failed upstream is an answer too: the CLI is told in the API's own words."""

    status: int
    """HTTP status to tell the CLI; 200 exactly when there is a message."""
    reason: Reason
    """Why the call ended so; for the receipt."""
    message: JsonObject | None = None
    """The whole message, or the count of tokens."""
    error: JsonObject | None = None
    """Error body in the API's shape, without secrets."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of the answer."""
    lost_usage: Usage = field(default_factory=Usage)
    """Tokens known to be spent on streams that broke."""
    attempts: int = 0
    """How often the upstream was asked."""
    retry_after_seconds: float | None = None
    """How long the upstream wants to be left alone, when it said so."""
    request_id: str | None = None
    """The upstream's name for the last attempt, to ask its support about."""
    duration_seconds: float = 0.0
    """Time of the whole call."""
    first_byte_seconds: float | None = None
    """Time until the first byte of the last attempt's answer, from the start of that attempt."""
    remarks: tuple[str, ...] = ()
    """What was changed in the request or noticed in the answer, one sentence each."""

    @property
    def ok(self) -> bool:
        """Whether there is a message."""
        return self.message is not None


@dataclass(frozen=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str
    """The piece."""


@dataclass(frozen=True)
class ThinkingDelta:
    """A piece of the model's thinking."""

    text: str
    """The piece."""


@dataclass(frozen=True)
class ToolStarted:
    """The model began to ask for a tool."""

    index: int
    """Number of the content block."""
    name: str
    """Name of the tool."""


@dataclass(frozen=True)
class ToolInputDelta:
    """A piece of a tool's input, as JSON text."""

    index: int
    """Number of the content block."""
    partial_json: str
    """The piece."""


@dataclass(frozen=True)
class Restarted:
    """The attempt failed and another one follows; deltas since the last restart are void."""

    reason: Reason
    """Why it failed."""
    attempt: int
    """Number of the attempt that follows, from 2."""
    wait_seconds: float
    """Time until it starts."""


ModelDelta = TextDelta | ThinkingDelta | ToolStarted | ToolInputDelta | Restarted

DeltaListener = Callable[[ModelDelta], None]


class EventListener(Protocol):
    """Takes the events of a stream as they come, for whoever passes the answer on before it is whole."""

    @property
    def is_out(self) -> bool:
        """Whether something of the answer has been passed on; it cannot be begun anew then."""
        ...

    def take(self, event: JsonObject) -> None:
        """Take an event that fits to those before it; a `message_start` begins anew."""
        ...


def delta_of(event: Mapping[str, Any]) -> ModelDelta | None:
    """Give what is worth showing of a stream event, if anything."""
    index = event.get("index", 0)
    if event.get("type") == "content_block_start":
        block = event["content_block"]
        return ToolStarted(index, str(block.get("name", ""))) if block.get("type") == "tool_use" else None
    if event.get("type") != "content_block_delta":
        return None
    delta = event["delta"]
    if delta["type"] == "text_delta":
        return TextDelta(delta["text"])
    if delta["type"] == "thinking_delta":
        return ThinkingDelta(delta["thinking"])
    if delta["type"] == "input_json_delta":
        return ToolInputDelta(index, delta["partial_json"])
    return None


def usage_of(reported: object) -> Usage:
    """Read the usage of a message; what is no number counts as nothing."""
    known = reported if isinstance(reported, dict) else {}

    def count(name: str) -> int:
        value = known.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    return Usage(
        model_calls=1,
        input_tokens=count("input_tokens"),
        cache_read_tokens=count("cache_read_input_tokens"),
        cache_write_tokens=count("cache_creation_input_tokens"),
        output_tokens=count("output_tokens"),
    )
