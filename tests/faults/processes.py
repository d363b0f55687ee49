"""Processes of sandboxes seen from outside: finding them, ending them, filling their folders."""

import contextlib
import errno
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

SERVER = "runner_image.server"
RUNNER = "runner_image.runner"
AGENT = "/opt/agent/claude"
BALLAST = "ballast"
_CHUNK = b"\0" * 65536


def descendants(root: int) -> Iterator[int]:
    """Processes below one, parents first."""
    below = _children()
    wave = list(below.get(root, ()))
    for pid in wave:
        yield pid
        wave.extend(below.get(pid, ()))


def children(root: int) -> list[int]:
    """Processes started by one itself, the latest last."""
    return sorted(_children().get(root, ()), key=_started)


def newest_sandbox() -> int | None:
    """The sandbox this process has started last: its outermost process."""
    found = [pid for pid in children(os.getpid()) if SERVER in command(pid)]
    return found[-1] if found else None


def command(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def alive(process: tuple[int, int]) -> bool:
    """Whether a process, as `below` gives it, is still there."""
    return _started(process[0]) == process[1]


def below(root: int) -> set[tuple[int, int]]:
    """Descendants of a process, each with the moment it was started: numbers are used again."""
    return {(pid, started) for pid in descendants(root) if (started := _started(pid))}


def named(root: int, word: str) -> list[int]:
    """Descendants with a word in their command line; not the bubblewraps around them."""
    return [pid for pid in descendants(root) if word in (line := command(pid)) and "bwrap" not in line.split(" ")[0]]


def kill(pid: int) -> None:
    """End a process at once, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def fill(folder: Path) -> int:
    """Write into a folder until nothing fits any more; return how many bytes it took."""
    written = 0
    handle = os.open(folder / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        for size in (65536, 4096, 512, 1):
            with contextlib.suppress(_NoSpace):
                while True:
                    written += _write(handle, _CHUNK[:size])
    finally:
        os.close(handle)
    return written


def inside(sandbox: int, place: str) -> Path | None:
    """A folder of a sandbox as its first process sees it, None when it can't be reached."""
    for pid in descendants(sandbox):
        path = Path(f"/proc/{pid}/root{place}")
        with contextlib.suppress(OSError):
            if RUNNER in command(pid) and path.is_dir():
                return path
    return None


class _NoSpace(Exception):
    """Nothing fits any more."""


def _write(handle: int, chunk: bytes) -> int:
    try:
        return os.write(handle, chunk)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise _NoSpace from None
        raise


def _children() -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                words = (directory / "stat").read_bytes().rpartition(b")")[2].split()
                if words[0] != b"Z":
                    found.setdefault(int(words[1]), []).append(int(directory.name))
    return found


def _started(pid: int) -> int:
    """When a process was started, in the kernel's ticks; 0 when it is gone."""
    try:
        words = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
        return 0 if words[0] == b"Z" else int(words[19])
    except (OSError, IndexError, ValueError):
        return 0
