"""Conversations and the numbers of their turns in Cosmos DB, a partition for each conversation of each user."""

from __future__ import annotations

import uuid
from typing import Any

from orchestration_service.errors import ConversationChanged, LeaseLost
from orchestration_service.operations.conversation import Conversation
from orchestration_service.operations.cosmos_documents import Create, Document, Patch, Replace, Step
from orchestration_service.operations.cosmos_storage import CosmosStorage, attempts, check, fenced, head_id, operation_partition, short
from orchestration_service.operations.lease import Claim


def conversation_partition(instance_id: str, upn: str, conversation_id: str) -> str:
    """Where a user's conversation lies."""
    return f"conversation:{short(instance_id, upn.casefold(), conversation_id)}"


def partition_of(head: Document) -> str:
    """Where the conversation of an operation lies."""
    return conversation_partition(head["instance_id"], head["upn"], head["conversation_id"])


def turn_id(operation_id: str) -> str:
    """The document that is an operation's place in the conversation, and the fence of its claims."""
    return f"turn-{short(operation_id)}"


class CosmosConversations:
    """Conversations, and the queue of their turns.

    Args:
        storage: The container and the blobs.
    """

    def __init__(self, storage: CosmosStorage) -> None:
        self._storage = storage

    async def number(self, head: Document) -> int:
        """Return the turn number of an operation, given out at its first call."""
        partition, operation_id = partition_of(head), head["operation_id"]
        async for _ in attempts(f"the conversation {head['conversation_id']!r}"):
            place = await self._storage.documents.read(partition, turn_id(operation_id))
            if place is not None:
                return int(place["turn"])
            counter = await self._storage.documents.read(partition, "counter")
            number = (counter["last"] if counter else 0) + 1
            turn: Document = {
                "id": turn_id(operation_id),
                "pk": partition,
                "kind": "turn",
                "operation_id": operation_id,
                "turn": number,
                "is_finished": False,
                "generation": 0,
                "ttl": self._storage.conversation_ttl,
            }
            if (await self._storage.documents.write(partition, self._count(partition, counter, number), Create(turn))).is_done:
                return number
        raise AssertionError("attempts() ends by raising")

    async def is_waiting(self, head: Document) -> bool:
        """Whether an earlier turn of the conversation has not ended."""
        if head["conversation_id"] is None:
            return False
        text = "SELECT * FROM c WHERE c.pk = @pk AND c.kind = 'turn' AND c.is_finished = false AND c.turn < @turn"
        for earlier in await self._storage.documents.query(partition_of(head), text, turn=head["turn_number"]):
            operation_id = earlier["operation_id"]
            other = await self._storage.documents.read(operation_partition(operation_id), head_id(operation_id))
            if other is not None and other["status"] == "InProgress":
                return True
            await self._storage.documents.write(partition_of(head), Patch(earlier["id"], {"is_finished": True}))
        return False

    async def finish(self, head: Document) -> None:
        """Let the next turn begin."""
        if head["conversation_id"] is not None:
            await self._storage.documents.write(partition_of(head), Patch(turn_id(head["operation_id"]), {"is_finished": True}))

    async def fence(self, head: Document, claim: Claim) -> None:
        """Let nobody with an earlier claim save the conversation any more."""
        if head["conversation_id"] is not None:
            raise_it = Patch(turn_id(claim.operation_id), {"generation": claim.generation}, f"c.generation < {claim.generation}")
            await self._storage.documents.write(partition_of(head), raise_it)

    async def load(self, instance_id: str, upn: str, conversation_id: str) -> Conversation | None:
        """Return a conversation as it was last saved."""
        found = await self._storage.documents.read(conversation_partition(instance_id, upn, conversation_id), "conversation")
        return Conversation.model_validate_json(await self._storage.values.unpack(found["value"])) if found else None

    async def save(self, conversation: Conversation, claim: Claim | None) -> Conversation:
        """Save a conversation if nobody has since it was read."""
        partition = conversation_partition(conversation.instance_id, conversation.upn, conversation.conversation_id)
        guard = await self._guard(partition, claim)
        saved = conversation.model_copy(update={"version": conversation.version + 1})
        packed = await self._storage.values.pack(f"conversations/{short(partition)}", saved.model_dump_json().encode())
        document: Document = {
            "id": "conversation",
            "pk": partition,
            "kind": "conversation",
            "version": saved.version,
            "value": packed,
            "token": uuid.uuid4().hex,
            "ttl": self._storage.conversation_ttl,
        }
        async for _ in attempts(f"the conversation {conversation.conversation_id!r}"):
            earlier = await self._storage.documents.read(partition, "conversation")
            if earlier is not None and earlier["token"] == document["token"]:  # from a try whose answer was lost
                return saved
            if (earlier["version"] if earlier else 0) != conversation.version:
                await self._refuse(conversation, packed, claim)
            step = Replace({**document, "_etag": earlier["_etag"]}) if earlier else Create(document)
            counting = await self._count_saved(partition, saved)
            outcome = await self._storage.documents.write(partition, *guard, step, *counting)
            if outcome.is_done:
                await self._storage.values.forget(earlier["value"] if earlier else {})
                return saved
            if guard and outcome.step == 0:
                assert claim is not None
                raise LeaseLost(claim.operation_id, claim.generation)
        raise AssertionError("attempts() ends by raising")

    async def _refuse(self, conversation: Conversation, packed: dict[str, Any], claim: Claim | None) -> None:
        await self._storage.values.forget(packed)
        if claim is not None:
            check(await self._storage.head(claim.operation_id), claim)
        raise ConversationChanged(conversation.conversation_id, conversation.version)

    async def _guard(self, partition: str, claim: Claim | None) -> list[Step]:
        if claim is None:
            return []
        head = await self._storage.head(claim.operation_id)
        check(head, claim)
        if head["conversation_id"] is None or partition_of(head) != partition:
            return []  # a fork writes another conversation than its own: the check above has to do
        return [Patch(turn_id(claim.operation_id), {"touched": uuid.uuid4().hex}, fenced(claim))]

    async def _count_saved(self, partition: str, conversation: Conversation) -> list[Step]:
        highest = max((turn.turn_number for turn in conversation.turns), default=0)
        counter = await self._storage.documents.read(partition, "counter")
        return [self._count(partition, counter, highest)] if highest > (counter["last"] if counter else 0) else []

    def _count(self, partition: str, counter: Document | None, last: int) -> Step:
        if counter is not None:
            return Replace({**counter, "last": last})
        return Create({"id": "counter", "pk": partition, "kind": "counter", "last": last, "ttl": self._storage.conversation_ttl})
