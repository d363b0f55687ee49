"""Rows of the SQLite store, read and written: the words every part of it shares."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any

from orchestration_service.errors import LeaseLost, OperationUnknown
from orchestration_service.operations.lease import Claim, Lease
from orchestration_service.operations.model import Operation
from orchestration_service.operations.sqlite_schema import COLUMNS
from workflow_schemas.platform import CompletionResponse


def fetch(db: sqlite3.Connection, operation_id: str) -> Operation | None:
    """Return an operation, or None."""
    row = db.execute(f"SELECT {COLUMNS} FROM operations WHERE operation_id=?", (operation_id,)).fetchone()
    return operation_from(row) if row else None


def demand(db: sqlite3.Connection, operation_id: str) -> Operation:
    """Return an operation, or raise `OperationUnknown`."""
    operation = fetch(db, operation_id)
    if operation is None:
        raise OperationUnknown(operation_id)
    return operation


def admit(db: sqlite3.Connection, operation_id: str, claim: Claim | None) -> None:
    """Let a write about an operation pass, inside the transaction that does it.

    Raises:
        OperationUnknown: There is no such operation.
        LeaseLost: The claim is not the newest one.
    """
    row = db.execute("SELECT owner, generation FROM operations WHERE operation_id=?", (operation_id,)).fetchone()
    if row is None:
        raise OperationUnknown(operation_id)
    if claim is None:
        return
    if claim.operation_id != operation_id:
        raise ValueError(
            f"a claim on {claim.operation_id!r} cannot vouch for a write to {operation_id!r}; pass the claim on that operation"
        )
    if (claim.owner, claim.generation) != tuple(row):
        raise LeaseLost(operation_id, claim.generation)


def operation_from(row: sqlite3.Row) -> Operation:
    """Return a row of `COLUMNS` as an operation."""
    values = dict(row)
    result = values.pop("result")
    owner, generation, until = (values.pop(name) for name in ("owner", "generation", "lease_until"))
    lease = None if until is None else Lease(owner=owner, generation=generation, until=moment(until))
    return Operation(**values, result=CompletionResponse.model_validate_json(result) if result else None, lease=lease)


def moment(seconds: float) -> datetime:
    """Return seconds since 1970 as a moment, UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def to_json(value: dict[str, Any]) -> str:
    """Return JSON every reader takes. NaN and infinities reach us from sandboxes and are no JSON: they become null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))
