"""Conversations: what a later turn needs to know of the earlier ones, whichever replica or sandbox it runs in.

The turns form a tree. ``head_turn`` names the turn the next one continues; rewinding moves it, and the turns that are
left behind stay where they are, so their numbers and files are never used for something else.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestration_service.operations.lease import Claim


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class SandboxMark(_Frozen):
    """A sandbox as we left it. If it still bears the mark, it can be used without restoring anything."""

    session_id: str
    """The code session it is reached under."""
    generation: str
    """What we wrote into it: another or no mark means that it was replaced."""


class TurnRecord(_Frozen):
    """A sealed turn."""

    turn_number: int = Field(ge=1)
    """Its number, unique in the conversation."""
    parent_turn: int = Field(ge=0)
    """The turn it continued; 0 when it started from nothing."""
    operation_id: str
    """The operation it fulfilled."""
    end_reason: str
    """What ended it."""
    agent_session_id: str | None = None
    """The agent's own session, to be resumed by the next turn; None when there was none."""
    result_tree: str | None = None
    """Hash of the workspace's tree at its end; None when it could not be sealed."""
    seal_sha256: str | None = None
    """SHA-256 of the index of its seal; None when there is none to go on from."""
    archives: tuple[str, ...] = ()
    """Names of the files that restore this turn, in the order in which they are applied."""
    file_ids: dict[str, str] = Field(default_factory=dict)
    """File records of the user by file name; each archive is among them."""
    inputs: tuple[str, ...] = ()
    """Names of the user's files that restoring needs besides the archives; empty when the archives are enough."""
    created_at: datetime
    """When it was sealed, UTC."""


class ForkOffer(_Frozen):
    """A promise that another conversation may begin with one of these turns."""

    code_sha256: str
    """SHA-256 of the code that was told to the user; the code itself is kept nowhere."""
    turn_number: int = Field(ge=1)
    """The turn the other conversation begins with."""
    expires_at: datetime
    """From when on the code is useless, UTC."""
    taken_by: str = ""
    """The conversation that has used it; empty as long as none has."""


class Origin(_Frozen):
    """Where the turns of a conversation came from."""

    conversation_id: str
    """The conversation they were taken over from."""
    turn_number: int = Field(ge=1)
    """The last of the turns taken over."""


class Conversation(_Frozen):
    """A conversation of one user."""

    instance_id: str
    """The platform instance it belongs to."""
    upn: str = Field(min_length=1)
    """Whose it is; compared without regard to case."""
    conversation_id: str = Field(min_length=1)
    """Its id."""
    profile: str
    """The sandbox profile pinned at the first turn; no later turn runs under another one."""
    head_turn: int = Field(default=0, ge=0)
    """The turn the next one continues; 0 before the first, and after rewinding to the start."""
    turns: tuple[TurnRecord, ...] = ()
    """All turns ever sealed here, or taken over from the conversation it was forked from."""
    sandbox: SandboxMark | None = None
    """The sandbox of the last turn, if it may still live."""
    forks: tuple[ForkOffer, ...] = ()
    """Codes by which other conversations may begin with turns of this one."""
    origin: Origin | None = None
    """The conversation this one was forked from."""
    version: int = Field(default=0, ge=0)
    """How many times it has been saved; 0: never."""

    @model_validator(mode="after")
    def _turns_are_a_tree(self) -> Self:
        numbers = [turn.turn_number for turn in self.turns]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"two turns of the conversation {self.conversation_id!r} have the same number")
        if self.head_turn and self.head_turn not in numbers:
            raise ValueError(f"the head of the conversation {self.conversation_id!r} is turn {self.head_turn}, which it has not")
        return self

    def turn(self, turn_number: int) -> TurnRecord | None:
        """Return the turn with this number, or None when there is none."""
        return next((turn for turn in self.turns if turn.turn_number == turn_number), None)

    @property
    def head(self) -> TurnRecord | None:
        """The turn the next one continues, or None when the next one starts from nothing."""
        return self.turn(self.head_turn)


class Conversations(Protocol):
    """The part of the port that keeps conversations."""

    async def conversation(self, instance_id: str, upn: str, conversation_id: str) -> Conversation | None:
        """Return a conversation as it was last saved, or None when it never was. The case of ``upn`` does not matter."""
        ...

    async def save_conversation(self, conversation: Conversation, claim: Claim | None = None) -> Conversation:
        """Save a conversation if nobody has since it was read, and return it with its new version.

        The first save has version 0 and stores version 1. From then on, operations accepted in the conversation get
        turn numbers above every turn ever saved in it, also when a later save leaves those turns out.

        Raises:
            ConversationChanged: The stored version is not ``conversation.version``; read it again.
            LeaseLost: ``claim`` is outdated; nothing was saved.
            OperationUnknown: The claimed operation does not exist.
        """
        ...
