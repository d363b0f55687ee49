"""Operations in Azure Cosmos DB and Blob storage: the store several replicas share.

How things are laid out, and how writes are fenced: `cosmos_storage.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Self

import anyio

from orchestration_service.errors import OperationConflict, OperationUnknown
from orchestration_service.operations.conversation import Conversation
from orchestration_service.operations.cosmos_account import open_storage
from orchestration_service.operations.cosmos_conversations import CosmosConversations
from orchestration_service.operations.cosmos_documents import Create, Document
from orchestration_service.operations.cosmos_index import CosmosIndex
from orchestration_service.operations.cosmos_journal import CosmosJournal
from orchestration_service.operations.cosmos_leases import CosmosLeases
from orchestration_service.operations.cosmos_runs import CosmosRuns, clear, run_partition
from orchestration_service.operations.cosmos_settings import CosmosSettings
from orchestration_service.operations.cosmos_storage import CosmosStorage, attempts, check, head_id, operation_partition, short
from orchestration_service.operations.lease import Claim, EffectState
from orchestration_service.operations.model import (
    Created,
    Direction,
    FinalStatus,
    NewOperation,
    Operation,
    RecordedStep,
    StoredEvent,
    StoredMessage,
    StoredRequest,
)
from orchestration_service.operations.sqlite import ACCEPTED, FINISHED
from workflow_schemas.platform import CompletionResponse, to_wire


class CosmosOperations(anyio.AsyncContextManagerMixin):
    """An `OperationStore` in Cosmos DB and Blob storage. Use it as ``async with CosmosOperations(settings) as operations``.

    Args:
        settings: Where the accounts are, and how long things are kept.
        clock: Tells the time in UTC.
    """

    _storage: CosmosStorage

    def __init__(self, settings: CosmosSettings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._settings = settings
        self._clock = clock

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with AsyncExitStack() as stack:
            self._storage = await stack.enter_async_context(open_storage(self._settings, self._clock))
            self._index = CosmosIndex(self._storage)
            self._journal = CosmosJournal(self._storage)
            self._runs = CosmosRuns(self._storage)
            self._conversations = CosmosConversations(self._storage)
            self._leases = CosmosLeases(self._storage, self._conversations, self._runs)
            yield self

    async def create(self, new: NewOperation) -> Created:
        """Accept an operation, or return the one accepted earlier under the same id."""
        earlier = await self._find(new.operation_id)
        if earlier is not None:
            return await self._repeated(earlier, new)
        await self._index.enlist(new.instance_id, new.operation_id)
        head, request = await self._documents(new)
        outcome = await self._storage.documents.write(head["pk"], Create(head), Create(request))
        if not outcome.is_done:
            found = await self._storage.head(new.operation_id)
            if found["token"] != head["token"]:  # ours would be from a try whose answer was lost
                await self._storage.values.forget(request)
                return await self._repeated(found, new)
        return Created(await self._storage.operation(await self._numbered(head)), is_new=True)

    async def get(self, instance_id: str, operation_id: str) -> Operation | None:
        """Return an operation, or None when there is none."""
        head = await self._find(operation_id)
        if head is None or head["instance_id"] != instance_id:
            return None
        return await self._storage.operation(await self._numbered(head))

    async def request(self, operation_id: str) -> StoredRequest:
        """Return what was asked. A pruned request is unknown."""
        found = await self._storage.documents.read(operation_partition(operation_id), "request")
        if found is None:
            raise OperationUnknown(operation_id)
        return StoredRequest(await self._storage.values.unpack(found), found["identity_header"])

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
        changes = {
            "status_message": status_message,
            "updated_at": self._storage.now(),
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
        }
        await self._storage.write(operation_id, claim=claim, changes=changes, where="c.is_finished = false")

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
        """End an operation, result and status at once; the first end stays unless ``adopt`` is set."""
        packed: Document | None = None
        async for _ in attempts(f"the operation {operation_id!r}"):
            head = await self._storage.head(operation_id)
            check(head, claim)
            if not head["turn_number"]:
                await self._numbered(head)
                continue
            may_replace = adopt and not (head["status"] == "Completed" and status == "Failed")
            if head["status"] != "InProgress" and not may_replace:
                await self._settle(head)
                return await self._storage.operation(head)
            packed = packed or await self._storage.values.pack(f"results/{short(operation_id)}", to_wire(result))
            ended = {
                **head,
                "status": status,
                "is_finished": True,
                "status_message": status_message or FINISHED[status],
                "result": packed,
                "prompt_tokens": result.prompt_tokens,
                "completion_tokens": result.completion_tokens,
                "updated_at": self._storage.now(),
            }
            if (await self._storage.documents.replace(ended)).is_done:
                await self._settle(ended)
                return await self._storage.operation(ended)
        raise AssertionError("attempts() ends by raising")

    async def unfinished(self, instance_id: str) -> list[Operation]:
        """Return the operations still in progress, oldest first."""
        heads = await self._index.unfinished(instance_id)
        return [await self._storage.operation(await self._numbered(head)) for head in heads]

    async def claimable(self, instance_id: str, limit: int = 100) -> list[Operation]:
        """Return unfinished operations `claim` would give now, oldest first."""
        heads = [await self._numbered(head) for head in await self._index.unfinished(instance_id)]
        return [await self._storage.operation(head) for head in self._leases.claimable(heads, limit)]

    async def claim(self, operation_id: str, owner: str, seconds: float, *, failed_too: bool = False) -> Claim | None:
        """Take an unfinished operation whose lease is free or has lapsed, with the next generation."""
        await self._numbered(await self._storage.head(operation_id))
        return await self._leases.claim(operation_id, owner, seconds, failed_too=failed_too)

    async def renew(self, claim: Claim, seconds: float) -> Claim:
        """Prolong a lease to ``seconds`` from now."""
        return await self._leases.renew(claim, seconds)

    async def release(self, claim: Claim) -> None:
        """Give the lease up, so that the next claim need not wait."""
        await self._leases.release(claim)

    async def record_step(self, operation_id: str, step: str, data: dict[str, Any], claim: Claim | None = None) -> None:
        """Add a line to the journal."""
        await self._journal.record_step(operation_id, step, data, claim)

    async def steps(self, operation_id: str) -> list[RecordedStep]:
        """Return the journal, oldest first; empty for an unknown operation."""
        return await self._journal.steps(operation_id)

    async def begin_effect(self, operation_id: str, name: str, claim: Claim | None = None) -> EffectState:
        """Record that an effect is about to be done, and return how far it had got before this call."""
        return await self._journal.begin_effect(operation_id, name, claim)

    async def end_effect(self, operation_id: str, name: str, outcome: dict[str, Any], claim: Claim | None = None) -> EffectState:
        """Record what came of an effect, begun or not, and return it as it stands."""
        return await self._journal.end_effect(operation_id, name, outcome, claim)

    async def effects(self, operation_id: str) -> dict[str, EffectState]:
        """Return all effects begun or ended, by name, oldest first; empty for an unknown operation."""
        return await self._journal.effects(operation_id)

    async def append_events(self, operation_id: str, events: Sequence[dict[str, Any]], claim: Claim | None = None) -> list[StoredEvent]:
        """Number events, add them to the log, and return them as stored."""
        return await self._journal.append_events(operation_id, events, claim)

    async def events(self, operation_id: str, after: int = 0, limit: int = 500) -> list[StoredEvent]:
        """Return up to ``limit`` events numbered above ``after``, in order; empty for an unknown operation."""
        return await self._journal.events(operation_id, after, limit)

    async def record_messages(
        self, run_id: str, direction: Direction, messages: Iterable[tuple[int, str, bytes]], claim: Claim | None = None
    ) -> int:
        """Keep mailbox messages and return how many were new. The first message under a number stays."""
        return await self._runs.record(run_id, direction, messages, claim)

    async def messages(self, run_id: str, direction: Direction, after: int = 0) -> list[StoredMessage]:
        """Return the messages numbered above ``after``, in order."""
        return await self._runs.messages(run_id, direction, after)

    async def forget_messages(self, run_id: str) -> None:
        """Drop all messages of a run that needs them no more."""
        await self._runs.forget(run_id)

    async def conversation(self, instance_id: str, upn: str, conversation_id: str) -> Conversation | None:
        """Return a conversation as it was last saved, or None when it never was."""
        return await self._conversations.load(instance_id, upn, conversation_id)

    async def save_conversation(self, conversation: Conversation, claim: Claim | None = None) -> Conversation:
        """Save a conversation if nobody has since it was read, and return it with its new version."""
        return await self._conversations.save(conversation, claim)

    async def prune(self, instance_id: str, older_than: datetime) -> int:
        """Drop what ended operations that last changed before ``older_than`` need no more."""
        pruned = 0
        for line in await self._index.ended(instance_id, older_than):
            head = await self._find(line["operation_id"])
            for run_id in head["runs"] if head else ():
                await clear(self._storage, run_partition(run_id), "true")
            await clear(self._storage, operation_partition(line["operation_id"]), "c.kind <> 'operation'")
            pruned += await self._index.remove(line)
        return pruned

    async def _find(self, operation_id: str) -> Document | None:
        return await self._storage.documents.read(operation_partition(operation_id), head_id(operation_id))

    async def _repeated(self, head: Document, new: NewOperation) -> Created:
        if head["instance_id"] != new.instance_id or head["upn"].casefold() != new.upn.casefold():
            raise OperationConflict(new.operation_id)
        return Created(await self._storage.operation(await self._numbered(head)), is_new=False)

    async def _numbered(self, head: Document) -> Document:
        """Give an operation its turn number, should it have been made by somebody who died before."""
        if head["turn_number"]:
            return head
        number = await self._conversations.number(head)
        await self._storage.write(head["operation_id"], changes={"turn_number": number}, where="c.turn_number = 0")
        return {**head, "turn_number": number}

    async def _settle(self, head: Document) -> None:
        """Tell the lists that an operation has ended; repeated by whoever finds that this is missing."""
        await self._conversations.finish(head)
        await self._index.finish(head)

    async def _documents(self, new: NewOperation) -> tuple[Document, Document]:
        now, pk = self._storage.now(), operation_partition(new.operation_id)
        head = {
            **new.model_dump(exclude={"request", "identity_header"}),
            "id": head_id(new.operation_id),
            "pk": pk,
            "kind": "operation",
            "token": uuid.uuid4().hex,
            "turn_number": 0 if new.conversation_id is not None else 1,
            "status": "InProgress",
            "is_finished": False,
            "status_message": ACCEPTED,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "result": None,
            "last_step": None,
            "created_at": now,
            "updated_at": now,
            "lease": None,
            "generation": 0,
            "runs": [],
            "ttl": self._storage.operation_ttl,
        }
        request = {
            "id": "request",
            "pk": pk,
            "kind": "request",
            "identity_header": new.identity_header,
            "ttl": self._storage.operation_ttl,
            **await self._storage.values.pack(f"requests/{short(new.operation_id)}", new.request),
        }
        return head, request
