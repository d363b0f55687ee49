"""What the journal of a turn costs on SQLite, without the turn."""

import os
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from orchestration_service.cli.bench.figure import Figure
from orchestration_service.errors import ServiceError
from orchestration_service.operations import NewOperation, SqliteOperations
from workflow_schemas.platform import CompletionResponse

_TURNS = 100
_LEASE_SECONDS = 30


async def journal_of_turns() -> list[Figure]:
    """Record turn after turn in a file on disk, with the same write barriers as in the service."""
    with TemporaryDirectory(prefix="claude-code-bench-") as folder:
        async with SqliteOperations(Path(folder) / "operations.db") as store:
            taken = [await _turn(store, f"bench-{number}") * 1000 for number in range(_TURNS)]
    detail = f"12 steps, 50 events, 20 messages, 2 effects; median of {_TURNS}, p95 {quantiles(taken, n=20)[-1]:.1f} ms"
    return [Figure("journal of one turn on SQLite", median(taken), "ms", 20, detail)]


async def _turn(store: SqliteOperations, operation_id: str) -> float:
    """Record what a turn of eight model calls records, from its claim to its end; return the seconds."""
    await store.create(NewOperation(operation_id=operation_id, instance_id="i", upn="bench@example.com", agent_name="a", fingerprint="f"))
    since = time.perf_counter()
    claim = await store.claim(operation_id, "bench", _LEASE_SECONDS)
    if claim is None:
        raise ServiceError(f"the operation {operation_id!r} of the measurement could not be claimed")
    for number in range(12):
        await store.record_step(operation_id, f"step-{number}", {"session": "s" * 40}, claim)
    for _ in range(10):
        await store.append_events(operation_id, [{"type": "text", "content": "some words " * 10}] * 5, claim)
    for number in range(20):
        await store.record_messages(operation_id, "out", [(number, "model", os.urandom(2000))], claim)
    for _ in range(3):
        claim = await store.renew(claim, _LEASE_SECONDS)
    for name in ("call", "fetch"):
        await store.begin_effect(operation_id, name, claim)
        await store.end_effect(operation_id, name, {"ids": ["file-1"]}, claim)
    await store.finish(operation_id, "Completed", CompletionResponse(operation_id=operation_id, completion="done"), claim=claim)
    return time.perf_counter() - since
