"""A whole turn, and a cold start, against the bare CLI with the same script."""

import asyncio
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from orchestration_service.cli.bench.figure import Figure
from orchestration_service.cli.bench.stage import bare_cli, open_stage
from orchestration_service.scripted.demo_repository import create_demo_repository
from orchestration_service.scripted.script import shipped_script

_ROUNDS = 11
_COLD_ROUNDS = 5


async def whole_turn() -> list[Figure]:
    """Measure a turn of eight model calls in a warm sandbox against the bare CLI in a plain directory, taking turns."""
    script = shipped_script("edit_eight")
    ours, theirs = [], []
    async with open_stage(script) as stage:
        for number in range(_ROUNDS + 1):
            bare, _ = await _bare(number)
            conversation, record = await stage.conversation(warm=True)
            seconds, _ = await stage.turn(conversation, record)
            if number:  # the first round fills caches
                theirs.append(bare)
                ours.append(seconds)
    # each turn against the bare CLI just before it: what else the machine does comes and goes slowly
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    detail = f"median of {_ROUNDS} pairs; {median(ours):.2f} s against {median(theirs):.2f} s (ours {_shown(ours)}, bare {_shown(theirs)})"
    return [Figure("whole turn, warm sandbox ÷ bare CLI", ratio, "", 1.3, detail)]


async def cold_start() -> list[Figure]:
    """Measure the start of a sandbox on this machine."""
    return [await first_model_call("cold sandbox to first model call, over the bare CLI's start", 1.5)]


async def first_model_call(name: str, target: float, **chosen: Any) -> Figure:
    """Measure the time from the request to the first model call in a sandbox that does not exist yet, over the bare CLI's start.

    Args:
        name: What the figure is called.
        target: Seconds it must not be above.
        chosen: Settings that say where sandboxes are.
    """
    script = shipped_script("edit_eight")
    ours, theirs = [], []
    async with open_stage(script, **chosen) as stage:
        for number in range(_COLD_ROUNDS + 1):
            _, bare = await _bare(number)
            conversation, record = await stage.conversation(warm=False)
            stage.ear.arrivals.clear()
            since = asyncio.get_running_loop().time()
            await stage.turn(conversation, record)
            if number:
                theirs.append(bare)
                ours.append(stage.ear.arrivals[0] - since)
    over = median(ours) - median(theirs)
    detail = f"{median(ours):.2f} s against {median(theirs):.2f} s to the first model call, medians of {_COLD_ROUNDS}"
    return Figure(name, over, "s", target, detail)


async def _bare(number: int) -> tuple[float, float]:
    with TemporaryDirectory(prefix=f"claude-code-bare-{number}-") as name:
        folder = Path(name)
        made = await asyncio.to_thread(create_demo_repository, folder / "repository")
        return await bare_cli(shipped_script("edit_eight"), made.path, folder / "home")


def _shown(seconds: list[float]) -> str:
    return f"{min(seconds):.2f}–{max(seconds):.2f}"
