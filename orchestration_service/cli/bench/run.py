"""Runs the measurements and prints them beside their targets."""

import asyncio
import json
import multiprocessing
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import anyio

from context_client import ContextClientError
from orchestration_service.cli.bench import journal, mailbox, providers, seals, status, turns
from orchestration_service.cli.bench.figure import Figure, LeftOut
from orchestration_service.errors import ServiceError

Measurement = Callable[[], Coroutine[None, None, list[Figure] | LeftOut]]


async def bench(*, only: Sequence[str], json_path: Path | None) -> int:
    """Run the measurements, each in a process of its own so that none meets what another left in memory, and print a table.

    Args:
        only: Names of the measurements to run; empty for all.
        json_path: File for the figures as JSON.

    Returns:
        0 when every target was met by what could be measured here, 1 otherwise, 2 for an unknown name.
    """
    measurements = _measurements()
    chosen = [name for name in measurements if not only or name in only]
    unknown = sorted(set(only) - set(measurements))
    if unknown:
        print(f"There is no measurement called {', '.join(unknown)}; there are {', '.join(measurements)}.")
        return 2
    figures: list[Figure] = []
    left_out: dict[str, LeftOut] = {}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
        for name in chosen:
            print(f"measuring: {name} …", flush=True)
            measured = await asyncio.wrap_future(processes.submit(_measure, name))
            if isinstance(measured, LeftOut):
                left_out[name] = measured
            else:
                figures += measured
    print()
    for figure in figures:
        mark = "ok  " if figure.is_met else "MISS"
        print(f"{mark} {figure.name:58} {figure.value:9.3f} {figure.unit:4} ≤ {figure.target:g}  {figure.detail}")
    for name, reason in left_out.items():
        print(f"LEFT OUT {name}: {reason.why}")
    if json_path is not None:
        await anyio.Path(json_path).write_text(json.dumps([asdict(figure) for figure in figures], indent=1), encoding="utf-8")
    return 0 if all(figure.is_met for figure in figures) else 1


def _measure(name: str) -> list[Figure] | LeftOut:
    """Run one measurement; called in a new process, out of which only plain errors come."""
    try:
        return asyncio.run(_measurements()[name]())
    except ContextClientError as error:
        raise ServiceError(f"the measurement {name} failed: {error}") from None


def _measurements() -> dict[str, Measurement]:
    return {
        "turn": turns.whole_turn,
        "cold": turns.cold_start,
        "exchange": mailbox.exchange,
        "executions": mailbox.executions,
        "bytes": mailbox.model_call_bytes,
        "status": status.polls_beside_turns,
        "seals": seals.seals_and_restores,
        "journal": journal.journal_of_turns,
        "container-cold": providers.container_cold_start,
        "container-exchange": providers.container_exchange,
        "pool": providers.emulated_pool,
    }
