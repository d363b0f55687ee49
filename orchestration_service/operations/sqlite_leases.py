"""Leases and effects in the SQLite store: who works on an operation, and what must not be done twice."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from orchestration_service.errors import OperationUnknown
from orchestration_service.operations.lease import ABSENT, Claim, EffectState, lease_standing
from orchestration_service.operations.model import Operation
from orchestration_service.operations.sqlite_file import SqliteFile
from orchestration_service.operations.sqlite_rows import admit, moment, operation_from, to_json
from orchestration_service.operations.sqlite_schema import COLUMNS

_EARLIER_TURN = (
    "EXISTS (SELECT 1 FROM operations AS earlier WHERE earlier.status='InProgress' AND earlier.instance_id=o.instance_id"
    " AND earlier.upn_key=o.upn_key AND earlier.conversation_id=o.conversation_id AND earlier.turn_number<o.turn_number)"
)
"""True of an operation that has to wait; never of one without a conversation, because NULL equals nothing."""


class SqliteLeases(SqliteFile):
    """The ownership part of the store."""

    async def claim(self, operation_id: str, owner: str, seconds: float, *, failed_too: bool = False) -> Claim | None:
        """Take an unfinished operation whose lease is free or has lapsed and whose turn it is, or return None."""

        def work(db: sqlite3.Connection) -> Claim | None:
            query = (
                f"SELECT status, generation, granted_at, lease_until, {_EARLIER_TURN} AS waits FROM operations AS o WHERE operation_id=?"
            )
            row = db.execute(query, (operation_id,)).fetchone()
            if row is None:
                raise OperationUnknown(operation_id)
            now = self._clock().timestamp()
            standing = lease_standing(row["granted_at"], row["lease_until"], now)
            if standing == "ahead":  # nobody can tell how long it still runs, so it starts again
                _grant(db, operation_id, now, row["lease_until"] - row["granted_at"])
            is_open = row["status"] == "Failed" and failed_too or row["status"] == "InProgress" and not row["waits"]
            if not is_open or standing != "free":
                return None
            until = _grant(db, operation_id, now, seconds)
            generation = row["generation"] + 1
            db.execute("UPDATE operations SET owner=?, generation=? WHERE operation_id=?", (owner, generation, operation_id))
            return Claim(operation_id=operation_id, owner=owner, generation=generation, until=moment(until))

        return await self._write(work)

    async def renew(self, claim: Claim, seconds: float) -> Claim:
        """Prolong a lease to ``seconds`` from now, or raise `LeaseLost`."""

        def work(db: sqlite3.Connection) -> Claim:
            admit(db, claim.operation_id, claim)
            until = _grant(db, claim.operation_id, self._clock().timestamp(), seconds)
            return claim.model_copy(update={"until": moment(until)})

        return await self._write(work)

    async def release(self, claim: Claim) -> None:
        """Give a lease up; without effect on one of another generation."""
        await self._write(
            lambda db: db.execute(
                "UPDATE operations SET granted_at=NULL, lease_until=NULL WHERE operation_id=? AND owner=? AND generation=?",
                (claim.operation_id, claim.owner, claim.generation),
            )
        )

    async def claimable(self, instance_id: str, limit: int = 100) -> list[Operation]:
        """Return up to ``limit`` unfinished operations `claim` would give now, oldest first."""
        now = self._clock().timestamp()
        rows = await self._rows(
            f"SELECT {COLUMNS} FROM operations AS o WHERE status='InProgress' AND instance_id=?"
            f" AND (lease_until IS NULL OR lease_until<=? OR granted_at>?) AND NOT {_EARLIER_TURN} ORDER BY rowid LIMIT ?",
            *(instance_id, now, now, limit),
        )
        return [operation_from(row) for row in rows]

    async def begin_effect(self, operation_id: str, name: str, claim: Claim | None = None) -> EffectState:
        """Record that an effect is about to be done, and return how far it had got before."""

        def work(db: sqlite3.Connection) -> EffectState:
            admit(db, operation_id, claim)
            earlier = _effect(db, operation_id, name)
            if earlier is None:
                begun_by = claim.generation if claim else 0
                db.execute("INSERT INTO effects VALUES (?, ?, ?, NULL, ?)", (operation_id, name, begun_by, self._now()))
            return earlier or ABSENT

        return await self._write(work)

    async def end_effect(self, operation_id: str, name: str, outcome: dict[str, Any], claim: Claim | None = None) -> EffectState:
        """Record what came of an effect and return it as it stands; the first outcome stays."""

        def work(db: sqlite3.Connection) -> EffectState:
            admit(db, operation_id, claim)
            db.execute(
                "INSERT INTO effects VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET outcome=excluded.outcome, changed_at=excluded.changed_at WHERE outcome IS NULL",
                (operation_id, name, claim.generation if claim else 0, to_json(outcome), self._now()),
            )
            return _effect(db, operation_id, name) or ABSENT

        return await self._write(work)

    async def effects(self, operation_id: str) -> dict[str, EffectState]:
        """Return all effects begun or ended, by name, oldest first; empty for an unknown operation."""
        rows = await self._rows("SELECT * FROM effects WHERE operation_id=? ORDER BY rowid", operation_id)
        return {row["name"]: _state(row) for row in rows}


def _grant(db: sqlite3.Connection, operation_id: str, now: float, seconds: float) -> float:
    until = now + seconds
    db.execute("UPDATE operations SET granted_at=?, lease_until=? WHERE operation_id=?", (now, until, operation_id))
    return until


def _effect(db: sqlite3.Connection, operation_id: str, name: str) -> EffectState | None:
    row = db.execute("SELECT * FROM effects WHERE operation_id=? AND name=?", (operation_id, name)).fetchone()
    return _state(row) if row else None


def _state(row: sqlite3.Row) -> EffectState:
    if row["outcome"] is None:
        return EffectState(state="begun", begun_by=row["begun_by"])
    return EffectState(state="ended", outcome=json.loads(row["outcome"]), begun_by=row["begun_by"])
