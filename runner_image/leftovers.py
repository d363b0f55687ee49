"""Makes sure that nothing of the agent is alive when a run ends, and counts what could not be ended."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from runner_image.strangers import depth

_LEAVE_SECONDS = 1.0
_DIE_SECONDS = 2.0
_STEP_SECONDS = 0.01


async def end_leftovers() -> int:
    """Wait a moment for the agent's processes to leave, kill those that do not, and return how many are still there.

    The agent's processes are those behind its wall; whatever they started is there as well, `setsid` or not.
    """
    left = await _gone_within(_LEAVE_SECONDS)
    for process in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    return len(await _gone_within(_DIE_SECONDS)) if left else 0


async def _gone_within(seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while True:
        left = await asyncio.to_thread(processes_behind_the_wall)
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(_STEP_SECONDS)


def processes_behind_the_wall() -> list[int]:
    """Return the living processes behind a wall of this runner; a zombie holds nothing and does not count.

    They are in a process space below this one, or carry more filters of system calls than this process. Where the process space is not
    the sandbox's own, other people's containers are in such spaces too: there only what descends from this process counts.
    """
    filters, ours = depth(), None if _space_is_ours() else _descendants()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (ours is None or int(entry.name) in ours):
            with suppress(OSError):
                lines = (entry / "status").read_text(errors="replace").splitlines()
                facts = dict(line.split(":", 1) for line in lines if ":" in line)
                is_below = len(facts.get("NSpid", "").split()) > 1 or int(facts.get("Seccomp_filters", 0)) > filters
                if is_below and facts.get("State", "").split()[:1] != ["Z"]:
                    found.append(int(entry.name))
    return found


def _space_is_ours() -> bool:
    """Whether the first process here is that of a sandbox: bubblewrap or an init, with the server's name among its words."""
    with suppress(OSError):
        return b"runner_image.server" in Path("/proc/1/cmdline").read_bytes()
    return False


def _descendants() -> frozenset[int]:
    """The processes started by this one, and by those."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
    found = {os.getpid()}
    while fresh := {process for process, parent in parents.items() if parent in found} - found:
        found |= fresh
    return frozenset(found - {os.getpid()})
