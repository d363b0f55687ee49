"""Finds and kills processes that executions left behind in a session that was theirs.

Killing a process group misses children that were given a group of their own (shells with job control do that), but
those still belong to the execution's session. A process that called setsid is detached on purpose and is left alone.
"""

import contextlib
import os
import signal
from pathlib import Path

_SESSION_FIELD = 3  # of the words behind the command name in /proc/PID/stat: state, ppid, pgrp, session


def kill_sessions(sessions: frozenset[int]) -> int:
    """Kill every process whose session is one of these; blocks for a moment.

    Args:
        sessions: Session ids, which are the process ids of executions that started them.

    Returns:
        How many were killed.
    """
    killed = 0
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and _session_of(directory) in sessions:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(directory.name), signal.SIGKILL)
                killed += 1
    return killed


def _session_of(directory: Path) -> int | None:
    try:
        words = (directory / "stat").read_bytes().rpartition(b")")[2].split()
        return int(words[_SESSION_FIELD])
    except (OSError, IndexError, ValueError):
        return None
