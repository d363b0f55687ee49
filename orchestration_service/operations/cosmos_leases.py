"""Leases in Cosmos DB: part of the operation's own document, taken over its etag."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from orchestration_service.errors import OperationUnknown
from orchestration_service.operations.cosmos_conversations import CosmosConversations
from orchestration_service.operations.cosmos_documents import Document
from orchestration_service.operations.cosmos_runs import CosmosRuns
from orchestration_service.operations.cosmos_storage import CosmosStorage, as_text, attempts
from orchestration_service.operations.lease import Claim


class CosmosLeases:
    """Who owns which operation.

    Args:
        storage: The container and the clock.
        conversations: The queues of turns, and their fences.
        runs: The runs' fences.
    """

    def __init__(self, storage: CosmosStorage, conversations: CosmosConversations, runs: CosmosRuns) -> None:
        self._storage = storage
        self._conversations = conversations
        self._runs = runs

    async def claim(self, operation_id: str, owner: str, seconds: float, *, failed_too: bool) -> Claim | None:
        """Take an operation whose lease is free or has lapsed, if its turn has come."""
        token = uuid.uuid4().hex
        async for _ in attempts(f"the operation {operation_id!r}"):
            head = await self._storage.head(operation_id)
            lease = head["lease"]
            if lease is not None and lease["token"] == token:  # from a try whose answer was lost
                return await self._fenced(head)
            now = self._storage.clock()
            if head["status"] == "InProgress":
                if await self._conversations.is_waiting(head):
                    return None
            elif not (failed_too and head["status"] == "Failed"):
                return None
            if lease is not None and lease["granted_at"] > as_text(now):
                await self._storage.documents.replace({**head, "lease": self._anew(lease, now)})
                return None
            if lease is not None and lease["until"] > as_text(now):
                return None
            taken = {
                "owner": owner,
                "token": token,
                "seconds": seconds,
                "granted_at": as_text(now),
                "until": as_text(now + timedelta(seconds=seconds)),
            }
            taken_head = {**head, "lease": taken, "generation": head["generation"] + 1}
            if (await self._storage.documents.replace(taken_head)).is_done:
                return await self._fenced(taken_head)
        raise AssertionError("attempts() ends by raising")

    async def renew(self, claim: Claim, seconds: float) -> Claim:
        """Prolong a lease nobody else has taken."""
        now = self._storage.clock()
        until = now + timedelta(seconds=seconds)
        lease = {
            "owner": claim.owner,
            "token": uuid.uuid4().hex,
            "seconds": seconds,
            "granted_at": as_text(now),
            "until": as_text(until),
        }
        await self._storage.write(claim.operation_id, claim=claim, changes={"lease": lease})
        return claim.model_copy(update={"until": until})

    async def release(self, claim: Claim) -> None:
        """Give the lease up, if it is still this one."""
        try:
            await self._storage.write(claim.operation_id, changes={"lease": None}, where=f"c.generation = {claim.generation}")
        except OperationUnknown:
            return  # nothing to give up

    def claimable(self, unfinished: Sequence[Document], limit: int) -> list[Document]:
        """Choose, of all unfinished operations, oldest first, those that `claim` would give."""
        now = as_text(self._storage.clock())
        first: dict[tuple[str, str], int] = {}
        for head in unfinished:
            if head["conversation_id"] is not None:
                key = (head["upn"].casefold(), head["conversation_id"])
                first[key] = min(first.get(key, head["turn_number"]), head["turn_number"])
        free = [head for head in unfinished if self._is_free(head, now)]
        return [
            head
            for head in free
            if head["conversation_id"] is None or first[head["upn"].casefold(), head["conversation_id"]] == head["turn_number"]
        ][:limit]

    @staticmethod
    def _is_free(head: Document, now: str) -> bool:
        lease = head["lease"]
        return lease is None or lease["until"] <= now or lease["granted_at"] > now

    @staticmethod
    def _anew(lease: Document, now: datetime) -> Document:
        until = now + timedelta(seconds=lease["seconds"])
        return {**lease, "granted_at": as_text(now), "until": as_text(until)}

    async def _fenced(self, head: Document) -> Claim:
        """Hand a claim out once no earlier owner can write any more, also not where a batch does not reach."""
        claim = Claim(
            operation_id=head["operation_id"], owner=head["lease"]["owner"], generation=head["generation"], until=head["lease"]["until"]
        )
        for run_id in head["runs"]:  # complete: the etag we claimed over was read with it, and no older claim can add one now
            await self._runs.fence(run_id, claim)
        await self._conversations.fence(head, claim)
        return claim
