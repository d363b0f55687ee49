"""Mailbox messages in Cosmos DB, a partition for each run."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence

from orchestration_service.errors import LeaseLost
from orchestration_service.operations.cosmos_documents import Create, Delete, Document, Patch, Step
from orchestration_service.operations.cosmos_storage import CosmosStorage, attempts, check, fenced, short
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.model import Direction, StoredMessage

BATCH_STEPS = 90
BATCH_BYTES = 900 * 1024
"""Below Cosmos DB's 100 steps and 2 MB; larger bodies also hold up the event loop while they are sent."""


def run_partition(run_id: str) -> str:
    """Where a run's messages lie."""
    return f"run:{short(run_id)}"


def fence_id(run_id: str) -> str:
    """The document that says which claim may write there."""
    return f"fence-{short(run_id)}"


class CosmosRuns:
    """The messages of runs.

    Args:
        storage: The container and the blobs.
    """

    def __init__(self, storage: CosmosStorage) -> None:
        self._storage = storage

    async def record(self, run_id: str, direction: Direction, messages: Iterable[tuple[int, str, bytes]], claim: Claim | None) -> int:
        """Keep messages and return how many were new."""
        documents = [await self._document(run_id, direction, *message) for message in messages]
        if not documents and claim is not None:
            check(await self._storage.head(claim.operation_id), claim)
        return sum([await self._create(run_id, batch, claim) for batch in _batches(documents)])

    async def messages(self, run_id: str, direction: Direction, after: int) -> list[StoredMessage]:
        """Return the messages numbered above ``after``, in order."""
        of_ours = "c.pk = @pk AND c.kind = 'message' AND c.direction = @direction AND c.sequence > @after"
        text = f"SELECT * FROM c WHERE {of_ours} ORDER BY c.sequence"
        found = await self._storage.documents.query(run_partition(run_id), text, direction=direction, after=after)
        return [StoredMessage(one["sequence"], one["name"], await self._storage.values.unpack(one)) for one in found]

    async def forget(self, run_id: str) -> None:
        """Drop all messages of a run; its fence stays."""
        await clear(self._storage, run_partition(run_id), "c.kind = 'message'")

    async def fence(self, run_id: str, claim: Claim) -> None:
        """Let nobody with an earlier claim write into the run any more; a later one stays."""
        document = {
            "id": fence_id(run_id),
            "pk": run_partition(run_id),
            "kind": "fence",
            "generation": claim.generation,
            "ttl": self._storage.operation_ttl,
        }
        async for _ in attempts(f"the fence of run {run_id!r}"):
            raise_it = Patch(fence_id(run_id), {"generation": claim.generation}, f"c.generation < {claim.generation}")
            outcome = await self._storage.documents.write(run_partition(run_id), raise_it)
            if outcome.kind != "absent" or (await self._storage.documents.write(run_partition(run_id), Create(document))).is_done:
                return

    async def _create(self, run_id: str, documents: Sequence[Document], claim: Claim | None) -> int:
        """Create what is not there yet, all in one request when nothing is."""
        guard = [Patch(fence_id(run_id), {"touched": uuid.uuid4().hex}, fenced(claim))] if claim else []
        missing = list(documents)
        async for _ in attempts(f"the messages of run {run_id!r}"):
            steps: list[Step] = [*guard, *map(Create, missing)]
            if not missing or (outcome := await self._storage.documents.write(run_partition(run_id), *steps)).is_done:
                break
            if claim is not None and outcome.step == 0:
                await self._admit(run_id, claim)
                continue
            missing = await self._not_there(run_id, missing)
            if not missing and claim is not None:
                check(await self._storage.head(claim.operation_id), claim)
        tokens = {document["id"]: document["token"] for document in documents}
        return len(missing) + await self._count_ours(run_id, tokens, {document["id"] for document in missing})

    async def _admit(self, run_id: str, claim: Claim) -> None:
        """Enter a run in its operation, so that a take-over finds its fence, and raise that to our claim."""
        head = await self._storage.head(claim.operation_id)
        check(head, claim)
        if run_id not in head["runs"]:
            await self._storage.write(claim.operation_id, claim=claim, changes={"runs/-": run_id})
        await self.fence(run_id, claim)
        fence = await self._storage.documents.read(run_partition(run_id), fence_id(run_id))
        if fence is not None and fence["generation"] > claim.generation:
            raise LeaseLost(claim.operation_id, claim.generation)

    async def _not_there(self, run_id: str, documents: Sequence[Document]) -> list[Document]:
        known = await self._known(run_id, documents)
        return [document for document in documents if document["id"] not in known]

    async def _count_ours(self, run_id: str, tokens: dict[str, str], written: set[str]) -> int:
        """Count those that an earlier try of ours had written although its answer was lost."""
        others = [{"id": one} for one in tokens if one not in written]
        if not others:
            return 0
        known = await self._known(run_id, others)
        return sum(known.get(one) == token for one, token in tokens.items() if one not in written)

    async def _known(self, run_id: str, documents: Sequence[Document]) -> dict[str, str]:
        text = "SELECT c.id, c.token FROM c WHERE c.pk = @pk AND ARRAY_CONTAINS(@ids, c.id)"
        found = await self._storage.documents.query(run_partition(run_id), text, ids=[document["id"] for document in documents])
        return {one["id"]: one["token"] for one in found}

    async def _document(self, run_id: str, direction: Direction, sequence: int, name: str, body: bytes) -> Document:
        return {
            "id": f"{direction}-{sequence:012d}",
            "pk": run_partition(run_id),
            "kind": "message",
            "direction": direction,
            "sequence": sequence,
            "name": name,
            "token": uuid.uuid4().hex,
            "ttl": self._storage.operation_ttl,
            **await self._storage.values.pack(f"runs/{short(run_id)}", body),
        }


async def clear(storage: CosmosStorage, partition: str, where: str) -> None:
    """Delete what a condition finds in a partition, with the blobs it names."""
    text = f"SELECT TOP {BATCH_STEPS} c.id, c.blob, c.outcome FROM c WHERE c.pk = @pk AND {where}"
    async for _ in attempts(f"the partition {partition!r}"):
        while found := await storage.documents.query(partition, text):
            for one in found:
                await storage.values.forget({name: value for name, value in one.items() if value is not None})
                await storage.values.forget(one.get("outcome") or {})
            if not (await storage.documents.write(partition, *[Delete(one["id"]) for one in found])).is_done:
                break  # somebody else deletes the same: look again
        else:
            return


def _batches(documents: Sequence[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        length = len(document.get("body", "")) + 500
        if batch and (len(batch) >= BATCH_STEPS or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += length
    if batch:
        yield batch
