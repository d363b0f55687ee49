"""Who carries a turn out: each has one owner at a time, and none is left without one.

A turn is claimed before it is begun, and its lease renewed while it runs. A process that stops gives its leases up; those of one that
died lapse. What nobody holds is found and taken over, here or in any other process that shares the store.
"""

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from context_client import ContextApiError, UserIdentity
from orchestration_service.errors import CallerError, LeaseLost, OperationUnknown, ServiceError, StoreError
from orchestration_service.operations import AcceptedTurn, Claim, Operation, OperationStore, StatusBoard
from orchestration_service.operations.orphans import end_interrupted
from orchestration_service.routes.bodies import read_completion

logger = logging.getLogger(__name__)

WAITING = "Waiting for the previous message of this conversation."
"""What the user reads meanwhile."""

_FRESH_SECONDS = 2.0
_RELEASE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often and how long; all times in seconds."""

    lease: float = 30.0
    """How long a claim lasts without a sign of life; renewed every third of it."""
    look: float = 10.0
    """How often turns without an owner are looked for, give or take a fifth."""
    wait: float = 2.0
    """How often a turn that waits for another one looks whether its time has come, unless it is told."""
    late: tuple[float, ...] = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
    """When after a turn was given up its sandbox is asked again."""
    store: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    """Pauses before a turn that met a failing store is resumed."""
    patience: float = 45.0
    """How long a sandbox that does not answer is asked again before the turn is given up."""
    taken_over: int = 8
    """How many turns of other processes are worked on at once."""
    tidy: float = 3600.0
    """How often what ended turns need no more is dropped."""


def pace_of(lease: float) -> Pace:
    """Return the pace that goes with a length of the lease: what lapses quickly is looked for quickly."""
    return Pace(lease=lease, look=min(Pace.look, lease))


@dataclass(frozen=True)
class Load:
    """What a process has on its hands."""

    running: int
    """Turns that it works on."""
    waiting: int
    """Turns it has accepted that wait for the turn before them in their conversation."""


class CarriesOut(Protocol):
    """What is needed of the pipeline."""

    async def run(self, turn: AcceptedTurn, claim: Claim | None = None, *, resumed: bool = False, late: bool = False) -> bool:
        """Carry a turn out; whether it was given up while its sandbox may still have a result."""
        ...


class Keeper:
    """Owns turns; get one from `open_keeper`."""

    def __init__(self, *, store: OperationStore, board: StatusBoard, pipeline: CarriesOut, instance_id: str, pace: Pace) -> None:
        self._store = store
        self._board = board
        self._pipeline = pipeline
        self._instance_id = instance_id
        self._pace = pace
        self._owner = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(6)}"  # of this life of this process only
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._taken_over: set[str] = set()
        self._waiting: defaultdict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)
        self._running: set[str] = set()
        self._closing = False

    @property
    def load(self) -> Load:
        """What is on its hands at the moment."""
        return Load(running=len(self._running), waiting=sum(len(queue) for queue in self._waiting.values()))

    async def start(self, turn: AcceptedTurn) -> None:
        """Take a turn that was accepted here; only schedules the work."""
        if self._closing:
            self._board.let_go(turn.operation.operation_id)
            return
        self._spawn(turn.operation.operation_id, self._begin(turn))

    async def look_for_ever(self) -> None:
        """Take over what has no owner, now and again and again."""
        while True:
            try:
                await self._look()
            except ServiceError as error:
                logger.warning("Turns without an owner could not be looked for: %s", error)
            await asyncio.sleep(self._pace.look * random.uniform(0.8, 1.2))

    async def tidy_for_ever(self, kept: timedelta) -> None:
        """Drop, now and again and again, the requests, events and messages of turns that ended longer ago than that; results stay."""
        while True:
            try:
                while await self._store.prune(self._instance_id, datetime.now(UTC) - kept):
                    pass
            except StoreError as error:
                logger.warning("What ended turns have left could not be dropped: %s", error)
            await asyncio.sleep(self._pace.tidy * random.uniform(0.8, 1.2))

    async def close(self) -> None:
        """Stop working, without an end for any turn: another process takes them over at once."""
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, operation_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"turn {operation_id}")
        self._tasks[operation_id] = task
        task.add_done_callback(lambda done: self._ended(operation_id, done))

    def _ended(self, operation_id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(operation_id) is task:
            del self._tasks[operation_id]
        self._taken_over.discard(operation_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The turn %r was dropped by a fault; it will be taken over.", operation_id, exc_info=error)
            self._board.let_go(operation_id)

    async def _begin(self, turn: AcceptedTurn) -> None:
        operation_id = turn.operation.operation_id
        try:
            claim = await self._wait_for_claim(turn)
        except (StoreError, OperationUnknown) as error:
            logger.warning("The turn %r could not be claimed, and is left to be taken over: %s", operation_id, error)
            claim = None
        if claim is None:
            self._board.let_go(operation_id)
            return
        await self._hold(turn, claim, resumed=claim.generation > 1)

    async def _wait_for_claim(self, turn: AcceptedTurn) -> Claim | None:
        """Claim a turn as soon as the turns before it have ended; None when somebody else has it, or it has ended."""
        operation = turn.operation
        nudged, queue = asyncio.Event(), self._waiting[_conversation(operation)]
        queue.add(nudged)
        try:
            while True:
                nudged.clear()
                claim = await self._store.claim(operation.operation_id, self._owner, self._pace.lease)
                if claim is not None:
                    return claim
                now = await self._store.get(self._instance_id, operation.operation_id)
                if now is None or now.is_finished or _is_held(now):
                    return None
                self._board.publish(operation.operation_id, WAITING)
                try:
                    await asyncio.wait_for(nudged.wait(), self._pace.wait)
                except TimeoutError:
                    continue
        finally:
            queue.discard(nudged)
            self._forget_queue(operation)

    async def _hold(self, turn: AcceptedTurn, claim: Claim, *, resumed: bool, late: bool = False) -> bool:
        """Carry a claimed turn out; return whether it has to be tried again because its sandbox does not answer."""
        operation_id = turn.operation.operation_id
        if not late:
            self._board.show(turn.operation, claim)
        unanswered = release = False
        try:
            unanswered = release = await self._under_lease(turn, claim, resumed=resumed, late=late)
        except LeaseLost as error:
            logger.warning("%s", error)
            self._board.let_go(operation_id)
        except StoreError as error:
            logger.error("The turn %r is left to be taken over, the store fails: %s", operation_id, error)
            self._board.let_go(operation_id)
            release = True
        except asyncio.CancelledError:
            self._board.let_go(operation_id)
            await self._release(claim)
            raise
        if release or late:
            await self._release(claim)
        self._nudge(turn.operation)
        if unanswered and not late:
            self._taken_over.discard(operation_id)  # from here on it mostly waits
            await self._wait_for_late_result(turn)
        return unanswered

    async def _under_lease(self, turn: AcceptedTurn, claim: Claim, *, resumed: bool, late: bool) -> bool:
        self._running.add(claim.operation_id)
        course = asyncio.create_task(self._carry_out(turn, claim, resumed=resumed, late=late))
        renewing = asyncio.create_task(self._renew(claim))
        try:
            await asyncio.wait({course, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not course.done():
                await renewing  # raises: the lease is lost
            return await course
        finally:
            for task in (course, renewing):
                task.cancel()
            await asyncio.gather(course, renewing, return_exceptions=True)
            self._running.discard(claim.operation_id)

    async def _carry_out(self, turn: AcceptedTurn, claim: Claim, *, resumed: bool, late: bool) -> bool:
        for pause in self._pace.store:
            try:
                return await self._pipeline.run(turn, claim, resumed=resumed, late=late)
            except StoreError as error:
                logger.warning("The turn %r met a failing store and is resumed: %s", turn.operation.operation_id, error)
            await asyncio.sleep(pause)
            resumed = True
        return await self._pipeline.run(turn, claim, resumed=resumed, late=late)

    async def _renew(self, claim: Claim) -> None:
        """Renew a lease until it is lost. A store that does not answer gives it to nobody else either."""
        while True:
            await asyncio.sleep(self._pace.lease / 3)
            try:
                await self._store.renew(claim, self._pace.lease)
            except StoreError as error:
                logger.warning("The lease of %r was not renewed: %s", claim.operation_id, error)

    async def _release(self, claim: Claim) -> None:
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._store.release(claim)
        except (StoreError, TimeoutError) as error:  # it lapses by itself
            logger.warning("The lease of %r was not released: %s", claim.operation_id, error)

    async def _wait_for_late_result(self, turn: AcceptedTurn) -> None:
        """Ask the sandbox of a turn that was given up again and again; a result it still has takes the place of the failure."""
        since = time.monotonic()
        for moment in self._pace.late:
            await asyncio.sleep(max(0.0, since + moment - time.monotonic()))
            try:
                if await self._is_overtaken(turn.operation):
                    return
                claim = await self._store.claim(turn.operation.operation_id, self._owner, self._pace.lease, failed_too=True)
                if claim is not None and not await self._hold(turn, claim, resumed=True, late=True):
                    return
            except StoreError as error:
                logger.warning("A late result of %r could not be looked for: %s", turn.operation.operation_id, error)

    async def _is_overtaken(self, operation: Operation) -> bool:
        """Whether the conversation has gone on: its sandbox then works for a later turn."""
        if operation.conversation_id is None:
            return False
        known = await self._store.conversation(operation.instance_id, operation.upn, operation.conversation_id)
        if known is not None and any(turn.turn_number > operation.turn_number for turn in known.turns):
            return True
        others = await self._store.unfinished(self._instance_id)
        return any(_conversation(other) == _conversation(operation) for other in others)

    async def _look(self) -> None:
        for operation in await self._store.claimable(self._instance_id):
            if len(self._taken_over) >= self._pace.taken_over:
                return
            if operation.operation_id in self._tasks or _is_fresh(operation):
                continue
            claim = await self._store.claim(operation.operation_id, self._owner, self._pace.lease)
            if claim is not None:
                self._taken_over.add(operation.operation_id)
                self._spawn(operation.operation_id, self._resume(operation, claim))

    async def _resume(self, operation: Operation, claim: Claim) -> None:
        """Go on with a turn whose owner is gone. One that cannot be read is ended with words a person can read."""
        try:
            turn = await self._rebuilt(operation)
        except (CallerError, ContextApiError) as error:
            logger.warning("The turn %r cannot be resumed and is ended: %s", operation.operation_id, error)
            await end_interrupted(self._store, operation, claim)
            self._nudge(operation)
            return
        except (StoreError, asyncio.CancelledError):
            await self._release(claim)
            raise
        logger.info("The turn %r is taken over after step %r.", operation.operation_id, operation.last_step)
        await self._hold(turn, claim, resumed=True)

    async def _rebuilt(self, operation: Operation) -> AcceptedTurn:
        kept = await self._store.request(operation.operation_id)
        request = await asyncio.to_thread(read_completion, kept.body)  # may take long: bodies can be large
        identity = UserIdentity.from_header(kept.identity_header)
        return AcceptedTurn(operation=operation, request=request, identity=identity, identity_header=kept.identity_header)

    def _nudge(self, operation: Operation) -> None:
        for waiting in self._waiting.get(_conversation(operation), ()):
            waiting.set()

    def _forget_queue(self, operation: Operation) -> None:
        if not self._waiting[_conversation(operation)]:
            del self._waiting[_conversation(operation)]


@asynccontextmanager
async def open_keeper(
    *,
    store: OperationStore,
    board: StatusBoard,
    pipeline: CarriesOut,
    instance_id: str,
    pace: Pace | None = None,
    kept: timedelta = timedelta(days=30),
) -> AsyncIterator[Keeper]:
    """Keep turns until the block ends; what is unfinished then is left to others, or to the next start.

    Args:
        store: Where the turns are.
        board: Shows them.
        pipeline: Carries them out.
        instance_id: The platform instance whose turns are kept.
        pace: How often and how long.
        kept: How long an ended turn's request, events and messages stay.
    """
    keeper = Keeper(store=store, board=board, pipeline=pipeline, instance_id=instance_id, pace=pace or Pace())
    looking = asyncio.create_task(keeper.look_for_ever(), name="look for turns without an owner")
    tidying = asyncio.create_task(keeper.tidy_for_ever(kept), name="drop what ended turns have left")
    try:
        yield keeper
    finally:
        looking.cancel()
        tidying.cancel()
        await asyncio.gather(looking, tidying, return_exceptions=True)
        await keeper.close()


def _conversation(operation: Operation) -> tuple[str, str]:
    return operation.upn.casefold(), operation.conversation_id or operation.operation_id


def _is_held(operation: Operation) -> bool:
    return operation.lease is not None and operation.lease.until > datetime.now(UTC)


def _is_fresh(operation: Operation) -> bool:
    """Whether an operation was accepted a moment ago: whoever did that is about to claim it."""
    return operation.lease is None and (datetime.now(UTC) - operation.created_at).total_seconds() < _FRESH_SECONDS
