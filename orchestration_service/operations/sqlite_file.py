"""One SQLite file, opened for a store: private, versioned, and never touched on the event loop.

One connection writes, one reads (WAL lets them work side by side). A piece of work runs as a whole in one trip to a
worker thread: a turn's journal is some fifty small transactions, and a trip costs more than a statement. Work that has
begun is finished also when its task is cancelled, so no transaction is ever left half open.

``synchronous=NORMAL``: a killed process loses nothing; a power cut may lose the last moments but never the file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread

from orchestration_service.errors import StoreUnusable
from orchestration_service.operations.sqlite_errors import translated
from orchestration_service.operations.sqlite_schema import SCHEMA_VERSION, STEPS_BY_VERSION

T = TypeVar("T")
_PAUSE_SECONDS = 0.01
Clock = Callable[[], datetime]
"""Tells the time, with its zone."""


def wall_clock() -> datetime:
    """Return the time of the machine. Processes that share a file share the machine, so they share this clock too."""
    return datetime.now(UTC)


class SqliteFile(anyio.AsyncContextManagerMixin):
    """The file behind a store. Use it as ``async with``.

    Args:
        path: The file; made with its folder when missing, readable by its owner only.
        limit_bytes: Largest size of the file; reaching it raises `StoreFull` as a full disk would. None: no limit.
        busy_seconds: How long to wait for another process before `StoreBusy`.
        clock: Where every time stored and every lease compared comes from.
    """

    def __init__(self, path: Path, *, limit_bytes: int | None = None, busy_seconds: float = 5.0, clock: Clock = wall_clock) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._writing: anyio.CapacityLimiter
        self._reading: anyio.CapacityLimiter

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        self._writing, self._reading = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)  # one at a time, in turn
        with translated(self.path):
            await anyio.to_thread.run_sync(_make_private_file, self.path)
        async with self._connection() as self._writer, self._connection() as self._reader:
            with translated(self.path):
                await anyio.to_thread.run_sync(self._prepare, limiter=self._writing)
            yield self

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[sqlite3.Connection]:
        with translated(self.path):
            connection = await anyio.to_thread.run_sync(self._connect)
        try:
            yield connection
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(10):  # the last one to close tidies the file up
                await anyio.to_thread.run_sync(connection.close, abandon_on_cancel=True)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        return connection

    def _prepare(self) -> None:
        version = self._version()
        if version > SCHEMA_VERSION:
            raise StoreUnusable(
                f"The operation store {str(self.path)!r} was made by a newer version of this service "
                f"(format {version}, this one knows {SCHEMA_VERSION}). Update the service, or name another data folder.",
                self.path,
            )
        self._write_ahead()
        for setting in ("synchronous=NORMAL", "foreign_keys=ON"):
            self._writer.execute(f"PRAGMA {setting}")
        if version < SCHEMA_VERSION:
            self._in_transaction(self._migrate)
        if self._limit_bytes is not None:
            self._writer.execute(f"PRAGMA max_page_count={max(1, self._limit_bytes // 4096)}")
        self._reader.execute("PRAGMA query_only=ON")

    def _write_ahead(self) -> None:
        """Set the journal mode. SQLite does not wait for a lock here, and another replica may be opening the new file just now."""
        since = time.monotonic()
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() - since > self._busy_seconds:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def _migrate(self, db: sqlite3.Connection) -> None:
        for statements in STEPS_BY_VERSION[self._version() :]:  # another process may have been quicker
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def _version(self) -> int:
        return int(self._writer.execute("PRAGMA user_version").fetchone()[0])

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = self._writer
        db.execute("BEGIN IMMEDIATE")
        try:
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite itself rolls back on some errors, a full disk among them
                db.execute("ROLLBACK")
            raise
        return result

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` as one transaction: all of it or nothing, and nobody else writes meanwhile."""
        with translated(self.path):
            return await anyio.to_thread.run_sync(self._in_transaction, work, limiter=self._writing)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self.path):
            return await anyio.to_thread.run_sync(work, self._reader, limiter=self._reading)

    async def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return await self._read(lambda db: db.execute(query, values).fetchall())

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat()


def _make_private_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # prompts are nobody else's business
