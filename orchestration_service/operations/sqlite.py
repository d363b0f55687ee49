"""Operations in one SQLite file: the store of an embedded or single-replica service, or of replicas on one machine."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread

from orchestration_service.errors import OperationConflict, OperationUnknown
from orchestration_service.operations.lease import Claim
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
from orchestration_service.operations.sqlite_conversations import SqliteConversations
from orchestration_service.operations.sqlite_leases import SqliteLeases
from orchestration_service.operations.sqlite_rows import admit, demand, fetch, operation_from, to_json
from orchestration_service.operations.sqlite_schema import COLUMNS
from workflow_schemas.platform import CompletionResponse, to_wire

ACCEPTED = "Accepted; the turn is about to start."
FINISHED: Mapping[FinalStatus, str] = {
    "Completed": "The turn is complete.",
    "Failed": "The turn ended without an answer; the result says why.",
}
PRUNED_AT_ONCE = 100
"""Operations pruned in one transaction: other writers wait only for that long."""


class SqliteOperations(SqliteLeases, SqliteConversations):
    """An `OperationStore` in one SQLite file. Use it as ``async with SqliteOperations(path) as operations``.

    Args:
        path: The file; made with its folder when missing, readable by its owner only.
        limit_bytes: Largest size of the file; reaching it raises `StoreFull` as a full disk would. None: no limit.
        busy_seconds: How long to wait for another process before `StoreBusy`.
        clock: Where every time stored and every lease compared comes from.
    """

    async def create(self, new: NewOperation) -> Created:
        """Accept an operation, or return the one accepted earlier under the same id."""
        packed = await anyio.to_thread.run_sync(zlib.compress, new.request, 1)  # may be many megabytes

        def work(db: sqlite3.Connection) -> Created:
            earlier = fetch(db, new.operation_id)
            if earlier is not None:
                if earlier.instance_id != new.instance_id or not earlier.belongs_to(new.upn):
                    raise OperationConflict(new.operation_id)
                return Created(earlier, is_new=False)
            now = self._now()
            db.execute(
                "INSERT INTO operations (operation_id, instance_id, upn, upn_key, conversation_id, agent_name,"
                " turn_number, status, status_message, fingerprint, created_at, updated_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 'InProgress', ?, ?, ?, ?)",
                (
                    *(new.operation_id, new.instance_id, new.upn, new.upn.casefold(), new.conversation_id),
                    *(new.agent_name, _next_turn(db, new), ACCEPTED, new.fingerprint, now, now),
                ),
            )
            db.execute("INSERT INTO requests VALUES (?, ?, ?)", (new.operation_id, packed, new.identity_header))
            return Created(demand(db, new.operation_id), is_new=True)

        return await self._write(work)

    async def get(self, instance_id: str, operation_id: str) -> Operation | None:
        """Return an operation, or None when there is none."""
        rows = await self._rows(f"SELECT {COLUMNS} FROM operations WHERE operation_id=? AND instance_id=?", operation_id, instance_id)
        return operation_from(rows[0]) if rows else None

    async def request(self, operation_id: str) -> StoredRequest:
        """Return what was asked."""
        rows = await self._rows("SELECT body, identity_header FROM requests WHERE operation_id=?", operation_id)
        if not rows:
            raise OperationUnknown(operation_id)
        return StoredRequest(zlib.decompress(rows[0]["body"]), rows[0]["identity_header"])

    async def save_progress(
        self,
        operation_id: str,
        status_message: str,
        *,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        claim: Claim | None = None,
    ) -> None:
        """Keep the progress of a running operation; without effect on one that has ended."""

        def work(db: sqlite3.Connection) -> None:
            admit(db, operation_id, claim)
            db.execute(
                "UPDATE operations SET status_message=?, prompt_tokens=?, completion_tokens=?, updated_at=?"
                " WHERE operation_id=? AND status='InProgress'",
                (status_message, prompt_tokens, completion_tokens, self._now(), operation_id),
            )

        await self._write(work)

    async def finish(
        self,
        operation_id: str,
        status: FinalStatus,
        result: CompletionResponse,
        *,
        status_message: str | None = None,
        adopt: bool = False,
        claim: Claim | None = None,
    ) -> Operation:
        """End an operation, result and status at once; the first end stays unless ``adopt`` corrects it."""
        body = to_wire(result).decode()

        def work(db: sqlite3.Connection) -> Operation:
            admit(db, operation_id, claim)
            db.execute(
                "UPDATE operations SET status=?, status_message=?, result=?, prompt_tokens=?, completion_tokens=?,"
                " updated_at=?, is_pruned=0 WHERE operation_id=? AND (status='InProgress' OR ? AND (status='Failed' OR ?))",
                (
                    *(status, status_message or FINISHED[status], body, result.prompt_tokens, result.completion_tokens),
                    *(self._now(), operation_id, adopt, status == "Completed"),
                ),
            )
            return demand(db, operation_id)

        return await self._write(work)

    async def unfinished(self, instance_id: str) -> list[Operation]:
        """Return the operations still in progress, leased or not, oldest first."""
        rows = await self._rows(f"SELECT {COLUMNS} FROM operations WHERE status='InProgress' AND instance_id=? ORDER BY rowid", instance_id)
        return [operation_from(row) for row in rows]

    async def record_step(self, operation_id: str, step: str, data: dict[str, Any], claim: Claim | None = None) -> None:
        """Add a line to the journal."""

        def work(db: sqlite3.Connection) -> None:
            admit(db, operation_id, claim)
            now = self._now()
            db.execute("UPDATE operations SET last_step=?, updated_at=? WHERE operation_id=?", (step, now, operation_id))
            db.execute("INSERT INTO steps VALUES (?, ?, ?, ?)", (operation_id, step, to_json(data), now))

        await self._write(work)

    async def steps(self, operation_id: str) -> list[RecordedStep]:
        """Return the journal, oldest first; empty for an unknown operation."""
        rows = await self._rows("SELECT * FROM steps WHERE operation_id=? ORDER BY rowid", operation_id)
        return [RecordedStep(step=r["step"], data=json.loads(r["data"]), recorded_at=r["recorded_at"]) for r in rows]

    async def append_events(self, operation_id: str, events: Sequence[dict[str, Any]], claim: Claim | None = None) -> list[StoredEvent]:
        """Number events, add them to the log, and return them as stored."""

        def work(db: sqlite3.Connection) -> list[StoredEvent]:
            admit(db, operation_id, claim)
            query = "SELECT COALESCE(MAX(sequence), 0) FROM events WHERE operation_id=?"
            last = int(db.execute(query, (operation_id,)).fetchone()[0])
            stored = [StoredEvent(last + n, {**event, "seq": last + n}) for n, event in enumerate(events, start=1)]
            db.executemany("INSERT INTO events VALUES (?, ?, ?)", [(operation_id, s.sequence, to_json(s.event)) for s in stored])
            return stored

        return await self._write(work)

    async def events(self, operation_id: str, after: int = 0, limit: int = 500) -> list[StoredEvent]:
        """Return up to ``limit`` events numbered above ``after``, in order; empty for an unknown operation."""
        rows = await self._rows(
            "SELECT sequence, event FROM events WHERE operation_id=? AND sequence>? ORDER BY sequence LIMIT ?",
            *(operation_id, after, limit),
        )
        return [StoredEvent(row["sequence"], json.loads(row["event"])) for row in rows]

    async def record_messages(
        self, run_id: str, direction: Direction, messages: Iterable[tuple[int, str, bytes]], claim: Claim | None = None
    ) -> int:
        """Keep mailbox messages and return how many were new. The first message under a number stays."""
        rows = [(run_id, direction, sequence, kind, body) for sequence, kind, body in messages]
        if not rows:
            return 0

        def work(db: sqlite3.Connection) -> int:
            if claim is not None:
                admit(db, claim.operation_id, claim)
                db.execute("INSERT OR IGNORE INTO runs VALUES (?, ?)", (run_id, claim.operation_id))
            return db.executemany("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?)", rows).rowcount

        return await self._write(work)

    async def messages(self, run_id: str, direction: Direction, after: int = 0) -> list[StoredMessage]:
        """Return the messages numbered above ``after``, in order."""
        rows = await self._rows(
            "SELECT sequence, kind, body FROM messages WHERE run_id=? AND direction=? AND sequence>? ORDER BY sequence",
            *(run_id, direction, after),
        )
        return [StoredMessage(row["sequence"], row["kind"], bytes(row["body"])) for row in rows]

    async def forget_messages(self, run_id: str) -> None:
        """Drop all messages of a run that needs them no more."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM messages WHERE run_id=?", (run_id,))
            db.execute("DELETE FROM runs WHERE run_id=?", (run_id,))

        await self._write(work)

    async def prune(self, instance_id: str, older_than: datetime) -> int:
        """Drop what operations that ended before ``older_than`` need no more, and return how many were pruned."""
        until = older_than.astimezone(UTC).isoformat()
        pruned = 0
        while count := await self._write(lambda db: _prune_some(db, instance_id, until)):
            pruned += count
        return pruned


def _next_turn(db: sqlite3.Connection, new: NewOperation) -> int:
    if new.conversation_id is None:
        return 1
    key = (new.instance_id, new.upn.casefold(), new.conversation_id)
    turns = db.execute("SELECT MAX(turn_number) FROM operations WHERE instance_id=? AND upn_key=? AND conversation_id=?", key).fetchone()
    saved = db.execute("SELECT last_turn FROM conversations WHERE instance_id=? AND upn_key=? AND conversation_id=?", key).fetchone()
    return max(turns[0] or 0, saved[0] if saved else 0) + 1


def _prune_some(db: sqlite3.Connection, instance_id: str, until: str) -> int:
    query = "SELECT operation_id FROM operations WHERE instance_id=? AND updated_at<? AND status<>'InProgress' AND NOT is_pruned LIMIT ?"
    ended = [(row["operation_id"],) for row in db.execute(query, (instance_id, until, PRUNED_AT_ONCE))]
    db.executemany("DELETE FROM messages WHERE run_id IN (SELECT run_id FROM runs WHERE operation_id=?)", ended)
    for table in ("runs", "effects", "events", "steps", "requests"):
        db.executemany(f"DELETE FROM {table} WHERE operation_id=?", ended)
    db.executemany("UPDATE operations SET is_pruned=1 WHERE operation_id=?", ended)
    return len(ended)
