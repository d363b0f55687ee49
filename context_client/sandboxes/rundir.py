"""The service's private directory for sockets, and the removal of those that dead services left behind.

A Unix socket's path may have 108 bytes at most, so the directory is as near to the root as possible. A lock held for
life tells the living from the dead: the kernel drops it with the process, however that ended.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from .errors import SandboxUnavailable

_PREFIX = "fllm-sb-"
_MAX_PATH_BYTES = 90  # leaves room for the socket's own name


@asynccontextmanager
async def open_run_directory(parent: Path | None = None) -> AsyncIterator[Path]:
    """Make a private directory, sweep those of dead services, and remove ours at the end.

    Args:
        parent: Where to make it; by default the user's runtime directory or the temporary one.

    Raises:
        SandboxUnavailable: Its path would be too long for a socket.
    """
    directory, lock = await to_thread.run_sync(_make, parent or _default_parent())
    try:
        yield directory
    finally:
        with anyio.CancelScope(shield=True):  # a handful of unlinks
            await to_thread.run_sync(_remove, directory, lock)


def sweep(parent: Path) -> int:
    """Remove the directories of services that are gone; blocks for a moment.

    Args:
        parent: Where they are.

    Returns:
        How many were removed.
    """
    removed = 0
    for directory in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = directory.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            if _is_dead(directory):
                shutil.rmtree(directory, ignore_errors=True)
                removed += 1
    return removed


def _default_parent() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.access(runtime, os.W_OK) and len(runtime) < _MAX_PATH_BYTES:
        return Path(runtime)
    return Path(tempfile.gettempdir())


def _make(parent: Path) -> tuple[Path, int]:
    if len(os.fsencode(parent)) > _MAX_PATH_BYTES:
        raise SandboxUnavailable(f"the path {str(parent)!r} is too long for a Unix socket.", advice=("Set TMPDIR to a shorter path.",))
    sweep(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    return directory, _locked_file(directory)


def _remove(directory: Path, lock: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.close(lock)


def _locked_file(directory: Path) -> int:
    """Make the lock under another name and rename it: nobody ever sees it without its lock being held."""
    unready = directory / f"lock-{secrets.token_hex(4)}"
    fd = os.open(unready, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    unready.rename(directory / "lock")
    return fd


def _is_dead(directory: Path) -> bool:
    try:
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False  # just being made
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
