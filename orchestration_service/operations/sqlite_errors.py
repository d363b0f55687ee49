"""Where SQLite's complaints become ours, each with what to do about it."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestration_service.errors import StoreBusy, StoreError, StoreFull, StoreUnusable

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise a `StoreError` for every error of SQLite or the file system; other errors pass."""
    try:
        yield
    except sqlite3.Error as error:
        raise _of_sqlite(error, path) from error
    except OSError as error:
        raise _of_system(error, path) from error


def _of_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None  # the rest of the number says where, not what
    if primary == sqlite3.SQLITE_FULL:
        return _full(path)
    if primary in _BUSY:
        return StoreBusy(
            f"Another process keeps the operation store {str(path)!r} locked. Run one service per data folder, "
            "or stop what else works on the file.",
            path,
        )
    if primary in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return StoreUnusable(
            f"The operation store {str(path)!r} is damaged or no SQLite file ({error}). Restore it from a backup, or "
            "move it away to start with an empty one.",
            path,
        )
    return StoreUnusable(f"The operation store {str(path)!r} failed: {error}. Check the disk and its permissions.", path)


def _of_system(error: OSError, path: Path) -> StoreError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _full(path)
    return StoreUnusable(
        f"The operation store {str(path)!r} cannot be opened: {error.strerror or error}. Name a writable folder in CLAUDE_CODE_DATA_DIR.",
        path,
    )


def _full(path: Path) -> StoreFull:
    return StoreFull(
        f"No space is left for the operation store {str(path)!r}. Free space on that disk, or move the data folder "
        "(CLAUDE_CODE_DATA_DIR); nothing stored so far is lost.",
        path,
    )
