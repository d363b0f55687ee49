"""The status board: what every poll is answered from.

The portal polls ten times a second per open conversation, so a poll must not touch the store, build models or wait.
The board keeps each operation's answer as bytes, made at most once per change. The store stays the truth: the end of an
operation is stored before the board shows it, progress is written behind at a bounded rate, and what the board does not
know (after a restart, or because another replica works on it) it reads from the store.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import anyio

from orchestration_service.errors import LeaseLost, OperationUnknown, StoreError
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.model import FinalStatus, Operation, OperationStore, StoredEvent
from workflow_schemas.platform import (
    CompletionResponse,
    LongRunningOperation,
    progress_response,
    to_wire,
    well_formed,
)

logger = logging.getLogger(__name__)

PROGRESS_LIMIT = 20_000
"""Longest progress text in characters: every poll carries it, and the platform stores it each time."""
MESSAGE_LIMIT = 500
"""Longest status message in characters: it is for logs, the text itself travels in the result."""
FOREIGN_SECONDS = 0.25
"""How long the answer about an operation that runs elsewhere is kept before the store is asked again."""


@dataclass(slots=True)
class _Entry:
    """What the board knows of one operation."""

    operation: Operation
    owner: str
    is_ours: bool  # runs in this process: the board is ahead of the store
    body: bytes | None = None
    version: int = 0
    unsaved: bool = False
    read_at: float = 0.0
    claim: Claim | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)

    def is_fresh(self) -> bool:
        ended = self.operation.is_finished
        return self.is_ours or ended or time.monotonic() - self.read_at < FOREIGN_SECONDS

    def replace(self, operation: Operation) -> None:
        self.operation = operation
        self.body = None
        self.announce()

    def announce(self) -> None:
        self.version += 1
        self.changed.set()
        self.changed = anyio.Event()


class StatusBoard(anyio.AsyncContextManagerMixin):
    """Answers polls from memory and wakes whoever waits for an operation.

    Use it as ``async with StatusBoard(operations, instance_id=...) as board``; leaving writes the last progress.

    Args:
        operations: The store behind it.
        instance_id: The platform instance whose operations it shows.
        flush_seconds: How long progress may wait before it is stored.
        finished_kept: How many ended operations stay in memory; the least recently asked for go first.
    """

    def __init__(self, operations: OperationStore, *, instance_id: str, flush_seconds: float = 0.5, finished_kept: int = 1000) -> None:
        self._operations = operations
        self._instance_id = instance_id
        self._flush_seconds = flush_seconds
        self._finished_kept = finished_kept
        self._running: dict[str, _Entry] = {}
        self._others: OrderedDict[str, _Entry] = OrderedDict()
        self._something_unsaved = anyio.Event()

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._flush_forever)
                try:
                    yield self
                finally:
                    tasks.cancel_scope.cancel()
                    with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                        await self._flush()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            (only,) = group.exceptions  # the task group is our business: callers get their own error back
            raise only from only.__cause__

    def show(self, operation: Operation, claim: Claim | None = None) -> None:
        """Put an operation on the board that this process works on from now on; its progress is stored under the claim."""
        known = self._running.get(operation.operation_id)
        if known is not None:
            known.claim = claim
            return
        earlier = self._others.pop(operation.operation_id, None)
        entry = _Entry(operation, owner=operation.upn.casefold(), is_ours=True, claim=claim)
        self._running[operation.operation_id] = entry
        if earlier is not None:  # whoever waited on the other entry has to look again
            earlier.announce()
        if operation.is_finished:
            self._retire(entry)

    def let_go(self, operation_id: str) -> None:
        """Forget what this process knows of a running operation: it is not ours (any more), and the store knows better."""
        entry = self._running.pop(operation_id, None)
        if entry is None:
            return
        entry.is_ours, entry.unsaved, entry.claim, entry.read_at = False, False, None, -FOREIGN_SECONDS
        self._keep(entry)
        entry.announce()

    def publish(self, operation_id: str, progress_text: str, *, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """Show progress of a running operation at once and store it soon.

        Costs next to nothing: call it as often as there is something to say. Without effect on a blank text and on
        operations that have ended or run elsewhere.
        """
        entry = self._running.get(operation_id)
        if entry is None or not progress_text.strip():
            return
        entry.replace(
            entry.operation.model_copy(
                update={
                    "status_message": well_formed(_shortened(progress_text)),
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": completion_tokens,
                    "updated_at": datetime.now(UTC),
                }
            )
        )
        entry.unsaved = True
        self._something_unsaved.set()

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
        """Store the end of an operation, then show it.

        Returns:
            The operation as stored; an earlier end wins unless ``adopt`` is set.

        Raises:
            OperationUnknown: There is no such operation.
            LeaseLost: The claim is outdated; nothing was stored.
            StoreError: The end could not be stored; nothing is shown, so it may be tried again.
        """
        stored = await self._operations.finish(operation_id, status, result, status_message=status_message, adopt=adopt, claim=claim)
        entry = self._running.get(operation_id) or self._others.get(operation_id)
        if entry is None:
            entry = _Entry(stored, owner=stored.upn.casefold(), is_ours=False)
        entry.unsaved = False
        entry.replace(stored)
        self._retire(entry)
        return stored

    async def append_events(self, operation_id: str, events: Sequence[dict[str, Any]], claim: Claim | None = None) -> list[StoredEvent]:
        """Store activity events, then wake whoever watches the operation."""
        stored = await self._operations.append_events(operation_id, events, claim)
        entry = self._running.get(operation_id) or self._others.get(operation_id)
        if entry is not None:
            entry.announce()
        return stored

    def glance(self, operation_id: str, upn: str) -> bytes | None:
        """Return the answer to a poll if it is in memory and ``upn`` may see it; else None. Never waits."""
        entry = self._running.get(operation_id)
        if entry is None:
            entry = self._others.get(operation_id)
            if entry is None or not entry.is_fresh():
                return None
            self._others.move_to_end(operation_id)
        if entry.owner != upn.casefold():
            return None
        if entry.body is None:
            entry.body = to_wire(as_long_running(entry.operation))
        return entry.body

    async def status(self, operation_id: str, upn: str) -> bytes:
        """Return the answer to a poll, from the store when the board does not know the operation.

        Raises:
            OperationUnknown: There is no such operation of this user.
        """
        known = self.glance(operation_id, upn)
        if known is not None:
            return known
        await self.current(operation_id, upn)
        found = self.glance(operation_id, upn)
        if found is None:  # evicted between the two lines: so many others ended meanwhile
            raise OperationUnknown(operation_id)
        return found

    async def current(self, operation_id: str, upn: str) -> Operation:
        """Return an operation as it stands.

        Raises:
            OperationUnknown: There is no such operation of this user.
        """
        entry = self._running.get(operation_id) or self._others.get(operation_id)
        if entry is None or not entry.is_fresh():
            entry = await self._look_up(operation_id)
        if entry.owner != upn.casefold():
            raise OperationUnknown(operation_id)
        return entry.operation

    def version(self, operation_id: str) -> int:
        """Return a number that grows with every change, to be handed to `wait_change`."""
        entry = self._running.get(operation_id) or self._others.get(operation_id)
        return entry.version if entry else -1

    async def wait_change(self, operation_id: str, seen: int, timeout_seconds: float) -> bool:
        """Wait until the operation has changed since `version` was ``seen``; False when time ran out.

        Changes made by another process are not noticed: with those, come back after a second and look.
        """
        entry = self._running.get(operation_id) or self._others.get(operation_id)
        if entry is None:  # not on the board (any more): the store knows, but must not be asked in a tight loop
            await anyio.sleep(min(timeout_seconds, FOREIGN_SECONDS))
            return True
        if entry.version != seen:
            return True
        with anyio.move_on_after(timeout_seconds):
            await entry.changed.wait()
            return True
        return False

    async def wait_finished(self, operation_id: str, upn: str) -> Operation:
        """Wait, without limit, until the operation has ended, here or in another process.

        Raises:
            OperationUnknown: There is no such operation of this user.
        """
        while True:
            operation = await self.current(operation_id, upn)
            if operation.is_finished:
                return operation
            await self.wait_change(operation_id, self.version(operation_id), 15 if self.is_ours(operation_id) else 1)

    def is_ours(self, operation_id: str) -> bool:
        """Whether this process works on the operation, so that changes wake at once."""
        return operation_id in self._running

    async def _look_up(self, operation_id: str) -> _Entry:
        operation = await self._operations.get(self._instance_id, operation_id)
        if operation is None:
            raise OperationUnknown(operation_id)
        ours = self._running.get(operation_id)
        if ours is not None:  # shown while we were reading: the board is ahead
            return ours
        entry = self._others.get(operation_id)
        if entry is None:
            entry = _Entry(operation, owner=operation.upn.casefold(), is_ours=False)
            self._keep(entry)
        elif entry.operation != operation:
            entry.replace(operation)
        entry.read_at = time.monotonic()
        return entry

    def _retire(self, entry: _Entry) -> None:
        self._running.pop(entry.operation.operation_id, None)
        self._keep(entry)

    def _keep(self, entry: _Entry) -> None:
        self._others[entry.operation.operation_id] = entry
        self._others.move_to_end(entry.operation.operation_id)
        while len(self._others) > self._finished_kept:
            self._others.popitem(last=False)

    async def _flush_forever(self) -> None:
        while True:
            await self._something_unsaved.wait()
            await anyio.sleep(self._flush_seconds)
            self._something_unsaved = anyio.Event()
            await self._flush()

    async def _flush(self) -> None:
        for entry in [entry for entry in self._running.values() if entry.unsaved]:
            entry.unsaved = False
            operation = entry.operation
            try:
                await self._operations.save_progress(
                    operation.operation_id,
                    operation.status_message,
                    prompt_tokens=operation.prompt_tokens,
                    completion_tokens=operation.completion_tokens,
                    claim=entry.claim,
                )
            except LeaseLost:
                self.let_go(operation.operation_id)
            except (StoreError, OperationUnknown) as error:  # progress is a courtesy: the turn must not die of it
                logger.warning("Progress of operation %r was not stored: %s", operation.operation_id, error)


def as_long_running(operation: Operation) -> LongRunningOperation:
    """Return the answer to a poll; it carries a result from the first poll on, since the portal shows nothing else."""
    result = operation.result or progress_response(
        operation.operation_id,
        operation.status_message,
        prompt_tokens=operation.prompt_tokens,
        completion_tokens=operation.completion_tokens,
    )
    return LongRunningOperation(
        operation_id=operation.operation_id,
        status=operation.status,
        status_message=operation.status_message[:MESSAGE_LIMIT],
        upn=operation.upn,
        last_updated=operation.updated_at,
        prompt_tokens=operation.prompt_tokens or None,
        result=result,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= PROGRESS_LIMIT else text[: PROGRESS_LIMIT - 1] + "…"
