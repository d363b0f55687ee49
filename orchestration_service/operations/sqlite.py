"""Operations in one SQLite file: the store of an embedded or single-replica service.

One connection writes, one reads (WAL lets them work side by side). A write is one transaction under one lock, so two
tasks never share a transaction; two processes are kept apart by SQLite's own lock.

``synchronous=NORMAL``: a killed process loses nothing; a power cut may lose the last moments but never the file.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import aiosqlite
import anyio
import anyio.to_thread

from orchestration_service.errors import OperationConflict, OperationUnknown, StoreUnusable
from orchestration_service.operations.model import (
    Created,
    Direction,
    FinalStatus,
    NewOperation,
    Operation,
    RecordedStep,
    StoredEvent,
    StoredMessage,
    StoredRequest,
)
from orchestration_service.operations.sqlite_errors import translated
from orchestration_service.operations.sqlite_schema import COLUMNS, SCHEMA, SCHEMA_VERSION
from workflow_schemas.platform import CompletionResponse, to_wire

ACCEPTED = "Accepted; the turn is about to start."
FINISHED: Mapping[FinalStatus, str] = {
    "Completed": "The turn is complete.",
    "Failed": "The turn ended without an answer; the result says why.",
}


class SqliteOperations(anyio.AsyncContextManagerMixin):
    """An `OperationStore` in one SQLite file. Use it as ``async with SqliteOperations(path) as operations``.

    Args:
        path: The file; made with its folder when missing, readable by its owner only.
        limit_bytes: Largest size of the file; reaching it raises `StoreFull` as a full disk would. None: no limit.
        busy_seconds: How long to wait for another process before `StoreBusy`.
    """

    def __init__(self, path: Path, *, limit_bytes: int | None = None, busy_seconds: float = 5.0) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._busy_seconds = busy_seconds
        self._writing = anyio.Lock()
        self._writer: aiosqlite.Connection
        self._reader: aiosqlite.Connection

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        with translated(self.path):
            await anyio.to_thread.run_sync(_make_private_file, self.path)
        async with self._connection() as self._writer, self._connection() as self._reader:
            with translated(self.path):
                await self._prepare()
            yield self

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[aiosqlite.Connection]:
        opening = aiosqlite.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        with translated(self.path):
            connection = await opening
        try:
            connection.row_factory = sqlite3.Row
            yield connection
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(10):  # the thread must end, or the process hangs
                await connection.close()

    async def _prepare(self) -> None:
        version = await self._version()
        if version > SCHEMA_VERSION:
            raise StoreUnusable(
                f"The operation store {str(self.path)!r} was made by a newer version of this service "
                f"(format {version}, this one knows {SCHEMA_VERSION}). Update the service, or name another data folder.",
                self.path,
            )
        await self._writer.execute("PRAGMA journal_mode=WAL")
        await self._writer.execute("PRAGMA synchronous=NORMAL")
        await self._writer.execute("PRAGMA foreign_keys=ON")
        if version < SCHEMA_VERSION:
            async with self._transaction() as db:
                if await self._version() < SCHEMA_VERSION:  # another process may have been quicker
                    for statement in SCHEMA:
                        await db.execute(statement)
                    await db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        if self._limit_bytes is not None:
            await self._writer.execute(f"PRAGMA max_page_count={max(1, self._limit_bytes // 4096)}")
        await self._reader.execute("PRAGMA query_only=ON")

    async def _version(self) -> int:
        async with self._writer.execute("PRAGMA user_version") as cursor:
            row = await cursor.fetchone()
        return int(row[0]) if row else 0

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[aiosqlite.Connection]:
        async with self._writing:
            with translated(self.path):
                try:
                    await self._writer.execute("BEGIN IMMEDIATE")
                    yield self._writer
                    await self._writer.commit()
                except BaseException:
                    with anyio.CancelScope(shield=True):  # queued behind whatever was cancelled, so it always runs
                        await self._writer.rollback()
                    raise

    async def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with translated(self.path):
            return list(await self._reader.execute_fetchall(query, values))

    async def create(self, new: NewOperation) -> Created:
        """Accept an operation, or return the one accepted earlier under the same id."""
        packed = await anyio.to_thread.run_sync(zlib.compress, new.request, 1)  # may be many megabytes
        async with self._transaction() as db:
            earlier = await _fetch(db, new.operation_id)
            if earlier is not None:
                if earlier.instance_id != new.instance_id or not earlier.belongs_to(new.upn):
                    raise OperationConflict(new.operation_id)
                return Created(earlier, is_new=False)
            turn = await _next_turn(db, new)
            now = datetime.now(UTC).isoformat()
            await db.execute(
                "INSERT INTO operations (operation_id, instance_id, upn, upn_key, conversation_id, agent_name,"
                " turn_number, status, status_message, fingerprint, created_at, updated_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 'InProgress', ?, ?, ?, ?)",
                (
                    *(new.operation_id, new.instance_id, new.upn, new.upn.casefold(), new.conversation_id),
                    *(new.agent_name, turn, ACCEPTED, new.fingerprint, now, now),
                ),
            )
            await db.execute("INSERT INTO requests VALUES (?, ?, ?)", (new.operation_id, packed, new.identity_header))
            return Created(await _demand(db, new.operation_id), is_new=True)

    async def get(self, instance_id: str, operation_id: str) -> Operation | None:
        """Return an operation, or None when there is none."""
        rows = await self._rows(f"SELECT {COLUMNS} FROM operations WHERE operation_id=? AND instance_id=?", operation_id, instance_id)
        return _operation(rows[0]) if rows else None

    async def request(self, operation_id: str) -> StoredRequest:
        """Return what was asked."""
        rows = await self._rows("SELECT body, identity_header FROM requests WHERE operation_id=?", operation_id)
        if not rows:
            raise OperationUnknown(operation_id)
        return StoredRequest(zlib.decompress(rows[0]["body"]), rows[0]["identity_header"])

    async def save_progress(self, operation_id: str, status_message: str, *, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """Keep the progress of a running operation; without effect on one that has ended."""
        async with self._transaction() as db:
            await db.execute(
                "UPDATE operations SET status_message=?, prompt_tokens=?, completion_tokens=?, updated_at=?"
                " WHERE operation_id=? AND status='InProgress'",
                (status_message, prompt_tokens, completion_tokens, datetime.now(UTC).isoformat(), operation_id),
            )
            await _demand(db, operation_id)

    async def finish(
        self,
        operation_id: str,
        status: FinalStatus,
        result: CompletionResponse,
        *,
        status_message: str | None = None,
        adopt: bool = False,
    ) -> Operation:
        """End an operation, result and status at once; the first end stays unless ``adopt`` is set."""
        body = to_wire(result).decode()
        async with self._transaction() as db:
            await db.execute(
                "UPDATE operations SET status=?, status_message=?, result=?, prompt_tokens=?, completion_tokens=?,"
                " updated_at=? WHERE operation_id=? AND (status='InProgress' OR ?)",
                (
                    *(status, status_message or FINISHED[status], body, result.prompt_tokens),
                    *(result.completion_tokens, datetime.now(UTC).isoformat(), operation_id, adopt),
                ),
            )
            return await _demand(db, operation_id)

    async def unfinished(self, instance_id: str) -> list[Operation]:
        """Return the operations still in progress, oldest first."""
        rows = await self._rows(
            f"SELECT {COLUMNS} FROM operations WHERE status='InProgress' AND instance_id=? ORDER BY created_at, rowid",
            instance_id,
        )
        return [_operation(row) for row in rows]

    async def record_step(self, operation_id: str, step: str, data: dict[str, Any]) -> None:
        """Add a line to the journal."""
        now = datetime.now(UTC).isoformat()
        async with self._transaction() as db:
            await db.execute("UPDATE operations SET last_step=?, updated_at=? WHERE operation_id=?", (step, now, operation_id))
            await _demand(db, operation_id)
            await db.execute("INSERT INTO steps VALUES (?, ?, ?, ?)", (operation_id, step, _to_json(data), now))

    async def steps(self, operation_id: str) -> list[RecordedStep]:
        """Return the journal, oldest first; empty for an unknown operation."""
        rows = await self._rows("SELECT * FROM steps WHERE operation_id=? ORDER BY rowid", operation_id)
        return [RecordedStep(step=r["step"], data=json.loads(r["data"]), recorded_at=r["recorded_at"]) for r in rows]

    async def append_events(self, operation_id: str, events: Sequence[dict[str, Any]]) -> list[StoredEvent]:
        """Number events, add them to the log, and return them as stored."""
        async with self._transaction() as db:
            await _demand(db, operation_id)
            query = "SELECT COALESCE(MAX(sequence), 0) FROM events WHERE operation_id=?"
            async with db.execute(query, (operation_id,)) as cursor:
                row = await cursor.fetchone()
            last = int(row[0]) if row else 0
            stored = [StoredEvent(last + n, {**event, "seq": last + n}) for n, event in enumerate(events, start=1)]
            await db.executemany("INSERT INTO events VALUES (?, ?, ?)", [(operation_id, s.sequence, _to_json(s.event)) for s in stored])
        return stored

    async def events(self, operation_id: str, after: int = 0, limit: int = 500) -> list[StoredEvent]:
        """Return up to ``limit`` events numbered above ``after``, in order; empty for an unknown operation."""
        rows = await self._rows(
            "SELECT sequence, event FROM events WHERE operation_id=? AND sequence>? ORDER BY sequence LIMIT ?",
            *(operation_id, after, limit),
        )
        return [StoredEvent(row["sequence"], json.loads(row["event"])) for row in rows]

    async def record_messages(self, run_id: str, direction: Direction, messages: Iterable[tuple[int, str, bytes]]) -> int:
        """Keep mailbox messages and return how many were new. The first message under a number stays."""
        rows = [(run_id, direction, sequence, kind, body) for sequence, kind, body in messages]
        if not rows:
            return 0
        async with self._transaction() as db:
            cursor = await db.executemany("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?)", rows)
            return cursor.rowcount

    async def messages(self, run_id: str, direction: Direction, after: int = 0) -> list[StoredMessage]:
        """Return the messages numbered above ``after``, in order."""
        rows = await self._rows(
            "SELECT sequence, kind, body FROM messages WHERE run_id=? AND direction=? AND sequence>? ORDER BY sequence",
            *(run_id, direction, after),
        )
        return [StoredMessage(row["sequence"], row["kind"], bytes(row["body"])) for row in rows]

    async def forget_messages(self, run_id: str) -> None:
        """Drop all messages of a run that needs them no more."""
        async with self._transaction() as db:
            await db.execute("DELETE FROM messages WHERE run_id=?", (run_id,))


def _make_private_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # prompts are nobody else's business


async def _fetch(db: aiosqlite.Connection, operation_id: str) -> Operation | None:
    async with db.execute(f"SELECT {COLUMNS} FROM operations WHERE operation_id=?", (operation_id,)) as cursor:
        row = await cursor.fetchone()
    return _operation(row) if row else None


async def _demand(db: aiosqlite.Connection, operation_id: str) -> Operation:
    operation = await _fetch(db, operation_id)
    if operation is None:
        raise OperationUnknown(operation_id)
    return operation


async def _next_turn(db: aiosqlite.Connection, new: NewOperation) -> int:
    if new.conversation_id is None:
        return 1
    query = "SELECT COUNT(*) FROM operations WHERE instance_id=? AND upn_key=? AND conversation_id=?"
    async with db.execute(query, (new.instance_id, new.upn.casefold(), new.conversation_id)) as cursor:
        row = await cursor.fetchone()
    return int(row[0]) + 1 if row else 1


def _operation(row: sqlite3.Row) -> Operation:
    values = dict(row)
    result = values.pop("result")
    return Operation(**values, result=CompletionResponse.model_validate_json(result) if result else None)


def _to_json(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:  # NaN and infinities reach us from sandboxes and are no JSON: they become null
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))
