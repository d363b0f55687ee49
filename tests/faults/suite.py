"""Plays many runs, some at a time, each batch on a ground of its own; what it leaves behind is looked for when its platform is closed."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.faults.choosing import Fault
from tests.faults.ground import left_behind, open_ground
from tests.faults.judging import Verdict
from tests.faults.replica import forking
from tests.faults.scene import play

BATCH = 20


def play_all(faults: Sequence[Fault], *, jobs: int = 2, batch: int = BATCH, verbose: bool = False) -> Iterator[Verdict]:
    """Play runs in processes of their own and yield their verdicts as their batches end.

    Args:
        faults: What goes wrong, a run each.
        jobs: How many runs at a time.
        batch: How many runs share a ground.
        verbose: Whether to print what was seen of every run, and not only of those that broke a promise.
    """
    batch = max(1, min(batch, -(-len(faults) // jobs)))
    waiting = [tuple(faults[start : start + batch]) for start in range(0, len(faults), batch)]
    with ProcessPoolExecutor(max_workers=jobs, mp_context=forking(), max_tasks_per_child=1) as pool:
        running: set[Future[list[Verdict]]] = {pool.submit(play_batch, part, verbose) for part in waiting}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()


def play_batch(faults: Sequence[Fault], verbose: bool) -> list[Verdict]:
    """Play some runs one after the other in this process."""
    return asyncio.run(_play_batch(faults, verbose))


async def _play_batch(faults: Sequence[Fault], verbose: bool) -> list[Verdict]:
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="cc-faults-") as name:
        async with open_ground(Path(name)) as ground:
            for fault in faults:
                verdict = await play(fault, ground)
                print(_told(verdict, verbose), flush=True)
                verdicts.append(verdict)
        for line in await left_behind():
            verdicts[-1].left_behind.append(f"after the platform was closed there is still: {line}")
    return verdicts


def _told(verdict: Verdict, verbose: bool) -> str:
    fault = verdict.fault
    lines = [f"{verdict.seconds:6.1f} s  {verdict.status or 'no end':<10} {fault}"]
    lines += [f"            {problem}" for problem in verdict.problems]
    if verdict.problems or verbose:
        lines += [f"    ./dev faults --only {fault.kind} --seed {fault.seed} --runs 1 -v", verdict.transcript, ""]
    return "\n".join(lines)
