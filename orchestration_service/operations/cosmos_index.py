"""The list of operations in Cosmos DB, so that nobody has to search every partition for what is unfinished or old.

An operation is listed before it is made and marked after it has ended. A crash in between leaves a line that says too little
or too much; whoever reads it looks at the operation itself, and corrects the line.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import anyio

from orchestration_service.operations.cosmos_documents import Delete, Document, Patch
from orchestration_service.operations.cosmos_storage import (
    CosmosStorage,
    as_text,
    head_id,
    index_partition,
    index_shards,
    operation_partition,
    short,
)

READERS = 16
UNMADE_HOURS = 1
"""A line without an operation is dropped when it is this old; until then the operation may still be made."""


class CosmosIndex:
    """The list of operations.

    Args:
        storage: The container.
    """

    def __init__(self, storage: CosmosStorage) -> None:
        self._storage = storage

    async def enlist(self, instance_id: str, operation_id: str) -> None:
        """Add a line for an operation that is about to be made."""
        now = self._storage.now()
        document: Document = {
            "id": short(operation_id),
            "pk": index_partition(instance_id, operation_id),
            "kind": "line",
            "operation_id": operation_id,
            "is_finished": False,
            "updated_at": now,
            "ttl": self._storage.operation_ttl,
        }
        await self._storage.documents.put(document)

    async def finish(self, head: Document) -> None:
        """Mark an operation as ended."""
        partition, operation_id = index_partition(head["instance_id"], head["operation_id"]), head["operation_id"]
        changes = {"is_finished": True, "updated_at": head["updated_at"]}
        await self._storage.documents.write(partition, Patch(short(operation_id), changes))

    async def unfinished(self, instance_id: str) -> list[Document]:
        """Return the documents of the operations in progress, oldest first."""
        heads: list[Document] = []

        async def read(line: Document) -> None:
            operation_id = line["operation_id"]
            head = await self._storage.documents.read(operation_partition(operation_id), head_id(operation_id))
            if head is None:
                if line["updated_at"] < as_text(self._storage.clock() - timedelta(hours=UNMADE_HOURS)):
                    await self.remove(line)
            elif head["status"] != "InProgress":
                await self.finish(head)
            elif head["instance_id"] == instance_id:
                heads.append(head)

        lines = await self._lines(instance_id, "c.is_finished = false", "")
        limiter = anyio.CapacityLimiter(READERS)

        async def read_in_turn(line: Document) -> None:
            async with limiter:
                await read(line)

        async with anyio.create_task_group() as tasks:
            for line in lines:
                tasks.start_soon(read_in_turn, line)
        return sorted(heads, key=lambda head: (head["created_at"], head["operation_id"]))

    async def ended(self, instance_id: str, before: datetime) -> list[Document]:
        """Return the lines of operations that ended before a time and have not been pruned."""
        return await self._lines(instance_id, "c.is_finished = true AND c.updated_at < @before", as_text(before))

    async def remove(self, line: Document) -> bool:
        """Take a line off the list; False when somebody else has done so."""
        return (await self._storage.documents.write(line["pk"], Delete(line["id"]))).is_done

    async def _lines(self, instance_id: str, where: str, before: str) -> list[Document]:
        found: list[Document] = []

        async def read(partition: str) -> None:
            text = f"SELECT * FROM c WHERE c.pk = @pk AND c.kind = 'line' AND {where}"
            found.extend(await self._storage.documents.query(partition, text, before=before))

        async with anyio.create_task_group() as tasks:
            for partition in index_shards(instance_id):
                tasks.start_soon(read, partition)
        return found
