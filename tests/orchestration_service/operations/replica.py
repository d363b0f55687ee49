"""A replica in a process of its own, for tests that kill it: ``replica.py hold|drain <file> <owner>``.

``hold`` claims ``op-1`` and works on it for ever; ``drain`` works off whatever it can claim until nothing is left.
"""

import sys
from pathlib import Path

import anyio

from orchestration_service.operations import SqliteOperations
from workflow_schemas.platform import CompletionResponse

LEASE_SECONDS = 1.0


async def hold(store: SqliteOperations, owner: str) -> None:
    claim = await store.claim("op-1", owner, LEASE_SECONDS)
    assert claim is not None
    while True:
        claim = await store.renew(claim, LEASE_SECONDS)
        await store.append_events("op-1", [{"type": "text"}] * 3, claim)
        await store.record_messages("run-1", "out", [(1, "model", b"x" * 10_000)], claim)
        print("working", flush=True)
        await anyio.sleep(0.02)


async def drain(store: SqliteOperations, owner: str) -> None:
    while await store.unfinished("i"):
        for operation in await store.claimable("i", 5):
            operation_id = operation.operation_id
            if claim := await store.claim(operation_id, owner, LEASE_SECONDS * 60):
                await store.record_step(operation_id, "run", {"owner": owner}, claim)
                await store.finish(operation_id, "Completed", CompletionResponse(operation_id=operation_id, completion=owner), claim=claim)
        await anyio.sleep(0.002)


async def main(task: str, path: str, owner: str) -> None:
    async with SqliteOperations(Path(path), busy_seconds=30) as store:
        await {"hold": hold, "drain": drain}[task](store, owner)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
