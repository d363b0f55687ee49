"""What is sent to a sandbox and what comes back: a two-line program with an order in it, and the desk's answer to it. Pure."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from context_client.direct.errors import BadAnswer

MARK = "FLLMD1 "
"""What the line with an answer begins with; the same as in the image."""

_MAX_HEAD_CHARS = 64 * 1024


class ModelAccess(BaseModel):
    """How the agent's calls reach a model from inside the sandbox; the key travels with each call and is not stored there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str = Field("", description="Address of a gateway; empty for what the image or the public service says.")
    api_key: SecretStr = Field(SecretStr(""), description="Key of the Messages API.")
    auth_token: SecretStr = Field(SecretStr(""), description="Bearer token, for gateways that want one.")
    custom_headers: SecretStr = Field(SecretStr(""), description="More headers, one `Name: value` per line.")
    model: str = Field("", description="Model to ask for; empty for the CLI's own choice.")

    def environment(self) -> dict[str, str]:
        """Return the variables that the image reads; those not given are left as they are there."""
        given = {
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_API_KEY": self.api_key.get_secret_value(),
            "ANTHROPIC_AUTH_TOKEN": self.auth_token.get_secret_value(),
            "ANTHROPIC_CUSTOM_HEADERS": self.custom_headers.get_secret_value(),
            "ANTHROPIC_MODEL": self.model,
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, kw_only=True)
class Order:
    """A call to start."""

    kind: Literal["init", "chat"]
    """What is called."""

    message: str = ""
    """What the user says."""

    team: str | None = None
    """Whose conversation it is; None goes on with the stored one's."""

    seconds: float
    """How long the agent may work."""

    environment: dict[str, str] = field(repr=False)
    """Variables for the call, with the model's key."""

    def to_wire(self, call: str) -> dict[str, Any]:
        """Return the order in the desk's words, under a name that makes repeating it harmless."""
        return {
            "op": "start",
            "call": call,
            "kind": self.kind,
            "message": self.message,
            "team": self.team,
            "seconds": self.seconds,
            "environment": self.environment,
        }


class StoredSession(BaseModel):
    """The conversation a sandbox remembers."""

    model_config = ConfigDict(frozen=True)

    session_id: str = Field("", max_length=200, description="Session of the agent; empty before the first message.")
    team: str = Field("", max_length=10_000, description="Whose conversation it is.")
    initialized: bool = Field(False, description="Whether `init` found everything in order.")
    turns: int = Field(0, ge=0, description="Messages that were answered.")


class Head(BaseModel):
    """The first line of an answer; everything in it was written by a sandbox."""

    model_config = ConfigDict(frozen=True)

    generation: str = Field(max_length=100, description="What tells this sandbox from one that takes its place.")
    lines: int = Field(0, ge=0, le=1_000_000, description="Events that follow.")
    replaced: bool = Field(False, description="The sandbox is not the expected one; nothing was done.")
    busy: str | None = Field(None, max_length=100, description="A call that is at work; nothing was done.")
    unknown: bool = Field(False, description="No call of that name was started here.")
    next: int = Field(0, ge=0, description="Where to go on reading.")
    ended: bool = Field(False, description="Nothing follows.")
    left_out: int = Field(0, ge=0, description="Bytes of events that were too long to be passed on.")
    words: str = Field("", max_length=10_000, description="End of what the call wrote on standard error.")
    running: str | None = Field(None, max_length=100, description="Call at work.")
    last: str | None = Field(None, max_length=100, description="Call that was started last.")
    session: StoredSession | None = Field(None, description="The stored conversation, if there is one that can be read.")
    remembered: bool = Field(False, description="The conversation that was sent along is in place.")
    stopped: bool = Field(False, description="The call has ended.")
    cleared: bool = Field(False, description="The conversation is forgotten.")


@dataclass(frozen=True)
class Answer:
    """An answer of the desk."""

    head: Head
    """What it says."""

    lines: tuple[str, ...]
    """Events as they were written."""


def program(order: dict[str, Any]) -> str:
    """Write the code to execute."""
    packed = base64.urlsafe_b64encode(json.dumps(order).encode("ascii")).decode("ascii")
    return f"from runner_image.direct.desk import main\nmain({packed!r})\n"


def read_answer(output: str) -> Answer:
    """Find the answer in what an execution printed.

    Raises:
        BadAnswer: There is none, or it is cut or odd.
    """
    begin = 0 if output.startswith(MARK) else output.find("\n" + MARK) + 1
    if begin == 0 and not output.startswith(MARK):
        raise BadAnswer(f"The sandbox printed no answer, but {shown(output)!r}. Is its image of another version?")
    first, _, rest = output[begin:].partition("\n")
    try:
        head = Head.model_validate_json(first[len(MARK) :][:_MAX_HEAD_CHARS])
    except ValidationError as error:
        raise BadAnswer(f"The sandbox's answer cannot be read: {shown(first)!r}. Is its image of another version?") from error
    lines = rest.split("\n", head.lines)  # not splitlines: other line ends may stand inside what is hostile
    if len(lines) <= head.lines:
        raise BadAnswer(f"The sandbox's answer is cut: {head.lines} events were announced, {len(lines) - 1} came.")
    return Answer(head, tuple(lines[: head.lines]))


def shown(text: str, limit: int = 300) -> str:
    """Shorten hostile text for a message."""
    return text if len(text) <= limit else text[:limit] + "…"
