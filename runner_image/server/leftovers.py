"""Finds and kills processes that executions left behind in a session that was theirs.

Killing a process group misses children that were given a group of their own (shells with job control do that), but
those still belong to the execution's session. A process that called setsid is detached on purpose and is left alone.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

_DIE_SECONDS = 2.0
_STEP_SECONDS = 0.005


def kill_sessions(sessions: frozenset[int]) -> int:
    """Kill every process whose session is one of these and wait until they are dead; blocks for a moment.

    A killed process may still be inside a system call that makes a file, and one that was forked meanwhile was not seen: so it
    is looked again until nobody is left. One that hangs in the kernel is given up after two seconds.

    Args:
        sessions: Session ids, which are the process ids of executions that started them.

    Returns:
        How many were killed.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _DIE_SECONDS
    while (living := _members(sessions)) and time.monotonic() < deadline:
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(_STEP_SECONDS)
    return len(killed)


def _members(sessions: frozenset[int]) -> list[int]:
    """The living processes of these sessions; a zombie does nothing any more."""
    if not sessions:
        return []
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _lives_in(entry, sessions)]


def _lives_in(directory: Path, sessions: frozenset[int]) -> bool:
    try:
        state, _, _, session, *_ = (directory / "stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return False
    return state not in (b"Z", b"X") and int(session) in sessions
