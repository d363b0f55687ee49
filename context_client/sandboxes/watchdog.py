"""Measures what sandboxes use right now, from the outside: nothing inside can hide from its parent's /proc.

All of it blocks for some milliseconds; the provider calls it once a second in a worker thread, for all sandboxes.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .limits import SandboxLimits


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one sandbox uses."""

    memory_bytes: int
    """Memory of its processes; exact near the limit, an upper estimate below it."""

    processes: int
    """How many processes it has."""

    files: int | None
    """Files and directories in its writable places; None where the kernel does not let us look."""


def measure(roots: Mapping[int, SandboxLimits]) -> Mapping[int, Usage]:
    """Measure sandboxes.

    Args:
        roots: Limits by the process id of the outermost process. They decide from where on memory is counted exactly, and which places
            hold files. Those that are gone are left out of the answer.
    """
    children = _children()
    return {root: _usage(tree, limits) for root, limits in roots.items() if (tree := _tree(root, children))}


def broken_limit(usage: Usage, limits: SandboxLimits) -> str | None:
    """Say which limit a sandbox broke, in a sentence, or None.

    Args:
        usage: What it uses.
        limits: What it may use.
    """
    if usage.memory_bytes > limits.memory_bytes:
        used, may = usage.memory_bytes >> 20, limits.memory_bytes >> 20
        return f"its processes used {used} MiB of memory together, and may use {may} MiB."
    if usage.processes > limits.processes:
        return f"it ran {usage.processes} processes at once, and may run {limits.processes}."
    if usage.files is not None and usage.files > limits.files:
        return f"it held {usage.files} files, and may hold {limits.files}."
    return None


def _children() -> Mapping[int, list[int]]:
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                words = (directory / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(words[1]), []).append(int(directory.name))
    return children


def _tree(root: int, children: Mapping[int, list[int]]) -> list[int]:
    """Give a process and all its descendants, parents first; empty if it is gone."""
    if not Path("/proc", str(root)).exists():
        return []
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, ()))
    return tree


def _usage(tree: list[int], limits: SandboxLimits) -> Usage:
    resident = sum(map(_resident, tree))
    # Shared pages count once per process in the resident size; the exact share costs a walk over the page tables.
    memory = resident if resident <= limits.memory_bytes else sum(map(_proportional, tree))
    return Usage(memory_bytes=memory, processes=len(tree), files=_files(tree[1:2], limits))


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path("/proc", str(pid), "statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        for line in Path("/proc", str(pid), "smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


def _files(init: list[int], limits: SandboxLimits) -> int | None:
    """Count inodes as the sandbox's first process sees its places; the kernel keeps that number for each tmpfs."""
    total = 0
    for pid in init:
        for place in limits.places:
            try:
                status = os.statvfs(f"/proc/{pid}/root{place}")
            except OSError:
                return None
            total += status.f_files - status.f_ffree
    return total if init else None
