"""The service's private directory for sockets, and the removal of those that dead services left behind.

A Unix socket's path may have 107 bytes at most, so sockets never lie below the service's data, whose path is the administrator's, and the
directory is as near to the root as possible. A lock held for life tells the living from the dead: the kernel drops it with the process,
however that ended.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from .errors import SandboxUnavailable

_PREFIX = "fllm-sb-"
_NAME_BYTES = len(f"/{_PREFIX}") + 8  # what the standard library adds to a prefix
_MAX_PATH_BYTES = 90  # the directory's own; leaves room for the names in it, the longest being a container's "1234567/m/meet"
_USUAL_PLACES: Sequence[str] = ("/tmp", "/var/tmp", "/dev/shm")


@asynccontextmanager
async def open_run_directory(parent: Path | None = None) -> AsyncIterator[Path]:
    """Make a private directory, sweep those of dead services, and remove ours at the end.

    Args:
        parent: Where to make it; by default the user's runtime directory, the temporary one, or where those have long paths, /tmp.

    Raises:
        SandboxUnavailable: Its path would be too long for a socket, or nothing can be made there.
    """
    directory, lock = await to_thread.run_sync(_make, parent)
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
            if not is_held(directory):
                shutil.rmtree(directory, ignore_errors=True)
                removed += 1
    return removed


def is_held(directory: Path) -> bool:
    """Say whether a service still holds its run directory; in doubt it does. Blocks for a moment.

    Args:
        directory: Made by `open_run_directory`, perhaps in another process.
    """
    try:
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return directory.exists()  # it is just being made
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _default_parent() -> Path:
    wanted = [os.environ.get("XDG_RUNTIME_DIR", "")]
    with contextlib.suppress(FileNotFoundError):  # not even the working directory can be written to
        wanted.append(tempfile.gettempdir())
    places = dict.fromkeys(place for place in (*wanted, *_USUAL_PLACES) if place)
    for place in places:
        if _has_room(Path(place)) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    raise SandboxUnavailable(
        f"there is no folder for sockets: none of {', '.join(map(repr, places))} can be written to and has a path of at most"
        f" {_MAX_PATH_BYTES - _NAME_BYTES} bytes.",
        advice=("Set XDG_RUNTIME_DIR or TMPDIR to a folder with a shorter path, or make /tmp writable.",),
    )


def _has_room(parent: Path) -> bool:
    return len(os.fsencode(parent)) <= _MAX_PATH_BYTES - _NAME_BYTES


def _make(parent: Path | None) -> tuple[Path, int]:
    parent = parent or _default_parent()
    if not _has_room(parent):
        raise SandboxUnavailable(
            f"the path {str(parent)!r} is too long for Unix sockets: it has {len(os.fsencode(parent))} bytes, and"
            f" {_MAX_PATH_BYTES - _NAME_BYTES} are the most.",
            advice=("Name a run directory with a shorter path, or none: sockets then lie in the user's runtime directory or in /tmp.",),
        )
    sweep(parent)
    try:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise SandboxUnavailable(
            f"no folder for sockets can be made in {str(parent)!r}: {error.strerror}.",
            advice=("Make it writable for the service's user, or set XDG_RUNTIME_DIR or TMPDIR to another folder with a short path.",),
        ) from error
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
