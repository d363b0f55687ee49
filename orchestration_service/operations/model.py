"""The words of the operation store, and the port every store has to fill.

An operation is one completion from acceptance to answer. It is stored before it is acted upon, so that a poll, a
repeated request or a replica that takes over always finds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from context_client.identity import UserIdentity
from orchestration_service.operations.conversation import Conversations
from orchestration_service.operations.lease import Claim, Effects, Lease, Leases
from workflow_schemas.platform import CompletionRequest, CompletionResponse, OperationStatus

FinalStatus = Literal["Completed", "Failed"]
"""The statuses an operation can end with."""
Direction = Literal["in", "out"]
"""Which way a mailbox message travels, seen from the sandbox: ``in`` to the runner, ``out`` from it."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class NewOperation(_Frozen):
    """An operation about to be accepted."""

    operation_id: str = Field(min_length=1)
    """The caller's id, or one we made."""
    instance_id: str
    """The platform instance it belongs to."""
    upn: str = Field(min_length=1)
    """The user who asked, in the case they were named."""
    conversation_id: str | None = None
    """The conversation, if it is part of one."""
    agent_name: str
    """The agent that was asked."""
    fingerprint: str
    """SHA-256 of the request, hexadecimal: tells a repeated request from another one under the same id."""
    request: bytes = b""
    """The request as JSON, kept so that another process can take the turn over."""
    identity_header: str = ""
    """The caller's identity header, kept for the same reason."""


class Operation(_Frozen):
    """An operation as it stands."""

    operation_id: str
    """Its id."""
    instance_id: str
    """The platform instance it belongs to."""
    upn: str
    """The user who asked; compared without regard to case."""
    conversation_id: str | None = None
    """The conversation, if it is part of one."""
    agent_name: str
    """The agent that was asked."""
    turn_number: int = Field(ge=1)
    """Which turn of the conversation this is for this user, from 1."""
    status: OperationStatus
    """Where it stands, in the platform's words."""
    status_message: str
    """While running, the progress a user sees; afterwards a sentence about the end."""
    prompt_tokens: int = 0
    """Tokens the model has read so far."""
    completion_tokens: int = 0
    """Tokens the model has written so far."""
    result: CompletionResponse | None = None
    """The answer; present exactly when the operation has ended."""
    fingerprint: str
    """SHA-256 of the request, hexadecimal."""
    created_at: datetime
    """When it was accepted, UTC."""
    updated_at: datetime
    """When it last changed, UTC."""
    last_step: str | None = None
    """The last step the journal knows; where a take-over continues."""
    lease: Lease | None = None
    """Who works on it, or did until the lease lapsed; None when nobody has claimed it, or the last owner released it."""

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.status != "InProgress"

    def belongs_to(self, upn: str) -> bool:
        """Whether ``upn`` is the user who asked."""
        return self.upn.casefold() == upn.casefold()


class Created(NamedTuple):
    """The outcome of accepting an operation."""

    operation: Operation
    """The stored operation, ours or the earlier one under the same id."""
    is_new: bool
    """False when the operation had been accepted before: then nothing is to be started."""


class RecordedStep(_Frozen):
    """One line of an operation's journal."""

    step: str
    """Name of the step reached."""
    data: dict[str, Any]
    """What a take-over needs to continue from here."""
    recorded_at: datetime
    """When it was reached, UTC."""


class StoredEvent(NamedTuple):
    """One activity event with its place in the log."""

    sequence: int
    """Position in the operation's log, from 1 without gaps."""
    event: dict[str, Any]
    """The event; its ``seq`` equals ``sequence``."""


class StoredMessage(NamedTuple):
    """One mailbox message."""

    sequence: int
    """Its number in its direction."""
    kind: str
    """What it is."""
    body: bytes
    """Its bytes, as they travelled."""


class StoredRequest(NamedTuple):
    """What was asked, for a process that takes the turn over."""

    body: bytes
    """The request as JSON."""
    identity_header: str
    """The caller's identity header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTurn:
    """A turn handed to the pipeline: stored, visible on the board, not started yet."""

    operation: Operation
    """The operation it fulfils."""
    request: CompletionRequest
    """What was asked."""
    identity: UserIdentity
    """On whose behalf."""
    identity_header: str = field(repr=False)
    """The identity as it is to be passed on."""
    traceparent: str | None = None
    """The caller's trace context, if there is one."""


StartTurn = Callable[[AcceptedTurn], Awaitable[None]]
"""The pipeline's entry. It only schedules the work: whoever calls it is answering a request."""


class OperationStore(Leases[Operation], Effects, Conversations, Protocol):
    """Where operations live. ``conformance.py`` says in checks what each method promises.

    Every method may raise a `StoreError`. Methods about one operation raise `OperationUnknown` when there is none.

    Writes take a ``claim``. With one, the write happens only if that claim is the newest on the operation; otherwise it
    raises `LeaseLost` and changes nothing. A lapsed lease does no harm as long as nobody else has claimed the operation.
    Without a claim nothing is checked: that is for a process that owns the store alone.
    """

    async def create(self, new: NewOperation) -> Created:
        """Accept an operation, or return the one accepted earlier under the same id.

        Its turn number is above every other one of the conversation: of operations, pruned ones included, and of the
        turns saved in the `Conversation`.

        Raises:
            OperationConflict: The id belongs to another user or instance.
        """
        ...

    async def get(self, instance_id: str, operation_id: str) -> Operation | None:
        """Return an operation, or None when there is none."""
        ...

    async def request(self, operation_id: str) -> StoredRequest:
        """Return what was asked. A pruned request is unknown."""
        ...

    async def save_progress(
        self,
        operation_id: str,
        status_message: str,
        *,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        claim: Claim | None = None,
    ) -> None:
        """Keep the progress of a running operation; without effect on one that has ended."""
        ...

    async def finish(
        self,
        operation_id: str,
        status: FinalStatus,
        result: CompletionResponse,
        *,
        status_message: str | None = None,
        adopt: bool = False,
        claim: Claim | None = None,
    ) -> Operation:
        """End an operation, result and status at once. The first end stays unless ``adopt`` is set.

        ``adopt`` is for evidence that came late: it replaces an earlier end, but never a Completed by a Failed. The
        conversation's next turn can be claimed from here on, so what it needs is to be saved before.

        Returns:
            The operation as it stands afterwards.
        """
        ...

    async def unfinished(self, instance_id: str) -> list[Operation]:
        """Return the operations still in progress, leased or not, oldest first."""
        ...

    async def record_step(self, operation_id: str, step: str, data: dict[str, Any], claim: Claim | None = None) -> None:
        """Add a line to the journal."""
        ...

    async def steps(self, operation_id: str) -> list[RecordedStep]:
        """Return the journal, oldest first; empty for an unknown operation."""
        ...

    async def append_events(self, operation_id: str, events: Sequence[dict[str, Any]], claim: Claim | None = None) -> list[StoredEvent]:
        """Number events, add them to the log, and return them as stored."""
        ...

    async def events(self, operation_id: str, after: int = 0, limit: int = 500) -> list[StoredEvent]:
        """Return up to ``limit`` events numbered above ``after``, in order; empty for an unknown operation."""
        ...

    async def record_messages(
        self, run_id: str, direction: Direction, messages: Iterable[tuple[int, str, bytes]], claim: Claim | None = None
    ) -> int:
        """Keep mailbox messages and return how many were new. The first message under a number stays.

        A claim also says which operation the run belongs to, so that `prune` finds its messages.
        """
        ...

    async def messages(self, run_id: str, direction: Direction, after: int = 0) -> list[StoredMessage]:
        """Return the messages numbered above ``after``, in order."""
        ...

    async def forget_messages(self, run_id: str) -> None:
        """Drop all messages of a run that needs them no more."""
        ...

    async def prune(self, instance_id: str, older_than: datetime) -> int:
        """Drop what ended operations that last changed before ``older_than`` (UTC) need no more.

        That is their request with the caller's identity, events, mailbox messages, steps and effects. The operation with
        its result stays, and so do conversations: they answer late polls and repeated requests, and number the turns.

        Returns:
            How many operations were pruned by this call.
        """
        ...
