"""Who owns a turn, over the real store, with a pipeline that a test plays by hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from context_client import UserIdentity
from orchestration_service.errors import LeaseLost, OperationUnknown, StoreBusy
from orchestration_service.keeper import WAITING, Keeper, Load, Pace, open_keeper, pace_of
from orchestration_service.operations import AcceptedTurn, Claim, NewOperation, SqliteOperations, StatusBoard
from orchestration_service.operations.orphans import INTERRUPTED
from tests.orchestration_service.serving import ANN, INSTANCE, answer, completion, identity
from workflow_schemas.platform import CompletionRequest, to_wire

pytestmark = pytest.mark.anyio

QUICK = Pace(lease=0.6, look=0.1, wait=0.1, late=(0.1, 0.2, 0.3), store=(0.02, 0.02))


@dataclass
class Played:
    """A pipeline: each turn runs until the test ends it, and everything it was asked for is kept."""

    store: SqliteOperations
    asked: list[tuple[str, int, bool, bool]] = field(default_factory=list)
    ends: dict[str, asyncio.Event] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    unanswered: list[bool] = field(default_factory=list)
    late_ends: bool = False

    async def run(self, turn: AcceptedTurn, claim: Claim | None = None, *, resumed: bool = False, late: bool = False) -> bool:
        assert claim is not None
        name = turn.operation.operation_id
        self.asked.append((name, claim.generation, resumed, late))
        if self.faults:
            raise self.faults.pop(0)
        unanswered = self.unanswered.pop(0) if self.unanswered else False
        try:
            await self.ends.setdefault(name, asyncio.Event()).wait()
            await self.store.record_step(name, "collect", {}, claim)
        except (asyncio.CancelledError, LeaseLost):
            self.left.append(name)
            raise
        if not late or not unanswered:
            status: Any = "Failed" if unanswered else "Completed"
            await self.store.finish(name, status, answer(name, "Late." if late else "Fixed."), adopt=late, claim=claim)
        return unanswered

    def end(self, *names: str) -> None:
        for name in names:
            self.ends.setdefault(name, asyncio.Event()).set()


@dataclass
class Replica:
    """A process that keeps turns."""

    store: SqliteOperations
    board: StatusBoard
    played: Played
    keeper: Keeper

    async def start(self, name: str, conversation: str | None = None) -> None:
        turn = await accepted(self.store, name, conversation)
        self.board.show(turn.operation)
        await self.keeper.start(turn)

    async def begun(self, *names: str) -> None:
        await until(lambda: set(names) <= {name for name, *_ in self.played.asked})


async def accepted(store: SqliteOperations, name: str, conversation: str | None = None, body: bytes | None = None) -> AcceptedTurn:
    request = CompletionRequest.model_validate(completion(operation_id=name))
    new = NewOperation(
        operation_id=name,
        instance_id=INSTANCE,
        upn=ANN,
        conversation_id=conversation,
        agent_name="coder",
        fingerprint="f",
        request=to_wire(request) if body is None else body,
        identity_header=identity(),
    )
    operation = (await store.create(new)).operation
    return AcceptedTurn(operation=operation, request=request, identity=UserIdentity.from_header(identity()), identity_header=identity())


@asynccontextmanager
async def replica(folder: Path, pace: Pace = QUICK) -> AsyncIterator[Replica]:
    async with SqliteOperations(folder / "o.sqlite") as store, StatusBoard(store, instance_id=INSTANCE, flush_seconds=0.02) as board:
        played = Played(store)
        async with open_keeper(store=store, board=board, pipeline=played, instance_id=INSTANCE, pace=pace) as keeper:
            yield Replica(store, board, played, keeper)


async def until(holds: Callable[[], object | Awaitable[object]], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while True:
            found = holds()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.01)


async def status(store: SqliteOperations, name: str) -> str:
    operation = await store.get(INSTANCE, name)
    assert operation is not None
    return operation.status


async def ended(store: SqliteOperations, name: str) -> bool:
    return await status(store, name) != "InProgress"


async def test_what_an_ended_turn_has_left_is_dropped_in_time(tmp_path: Path) -> None:
    """The request with the caller's identity goes; the result stays, and so does everything of a turn that still runs."""
    async with SqliteOperations(tmp_path / "o.sqlite") as store, StatusBoard(store, instance_id=INSTANCE) as board:
        await accepted(store, "ended")
        await accepted(store, "running")
        await store.finish("ended", "Completed", answer("ended", "Fixed."))
        keeper = open_keeper(store=store, board=board, pipeline=Played(store), instance_id=INSTANCE, pace=QUICK, kept=timedelta())
        async with keeper:
            await until(lambda: _is_forgotten(store, "ended"))
        assert not await _is_forgotten(store, "running")
        assert await status(store, "ended") == "Completed"


async def _is_forgotten(store: SqliteOperations, name: str) -> bool:
    try:
        await store.request(name)
    except OperationUnknown:
        return True
    return False


async def test_a_turn_keeps_its_lease_as_long_as_it_runs(tmp_path: Path) -> None:
    async with replica(tmp_path) as one, replica(tmp_path) as two:
        await one.start("a")
        await one.begun("a")
        await asyncio.sleep(QUICK.lease * 3)
        assert two.played.asked == []
        one.played.end("a")
        await until(lambda: ended(one.store, "a"))
    assert one.played.asked == [("a", 1, False, False)]


async def test_turns_of_a_conversation_wait_for_each_other_across_replicas(tmp_path: Path) -> None:
    """And say so; turns of other conversations do not wait."""
    patient = Pace(lease=5.0, look=3600.0, wait=0.1)
    async with replica(tmp_path, patient) as one, replica(tmp_path, patient) as two:
        await one.start("a", "c")
        await one.begun("a")
        await one.start("b", "c")
        await two.start("d", "c")
        await two.start("other", "x")
        await two.begun("other")
        await until(lambda: _said(one, "b"))
        assert len(one.played.asked) == 1
        assert one.keeper.load == Load(running=1, waiting=1)
        one.played.end("a", "b")
        await one.begun("a", "b")
        await until(lambda: ended(one.store, "b"))
        two.played.end("d", "other")
        await until(lambda: ended(two.store, "d"))
        await until(lambda: two.keeper.load == Load(running=0, waiting=0))
    assert [name for name, *_ in one.played.asked] == ["a", "b"]
    assert [name for name, *_ in two.played.asked] == ["other", "d"]


async def _said(one: Replica, name: str) -> bool:
    return (await one.board.current(name, ANN)).status_message == WAITING


async def test_a_turn_whose_owner_died_is_taken_over(tmp_path: Path) -> None:
    """An owner that comes back from a long pause writes no more and works no more."""
    async with replica(tmp_path, Pace(lease=3600.0, look=3600.0)) as one, replica(tmp_path) as two:
        turn = await accepted(one.store, "a")
        claim = await one.store.claim("a", "dead", 0.2)
        assert claim is not None
        working = asyncio.create_task(one.played.run(turn, claim))
        await two.begun("a")
        two.played.end("a")
        await until(lambda: ended(two.store, "a"))
        one.played.end("a")
        with pytest.raises(LeaseLost):
            await working
    assert two.played.asked == [("a", 2, True, False)]


async def test_a_lost_lease_ends_the_work_at_once(tmp_path: Path) -> None:
    """And the board shows what the store says, not what was known here."""
    async with replica(tmp_path, Pace(lease=0.3, look=3600.0)) as one:
        await one.start("a")
        await one.begun("a")
        await one.keeper._store.release(Claim(operation_id="a", owner=one.keeper._owner, generation=1, until=_now()))
        taken = await one.store.claim("a", "another", 60)
        assert taken is not None
        await until(lambda: one.played.left == ["a"])
        await one.store.finish("a", "Completed", answer("a"), claim=taken)
        await until(lambda: _is_finished(one, "a"))


async def _is_finished(one: Replica, name: str) -> bool:
    return (await one.board.current(name, ANN)).is_finished


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


async def test_what_was_accepted_and_never_begun_is_begun(tmp_path: Path) -> None:
    async with SqliteOperations(tmp_path / "o.sqlite") as store:
        await accepted(store, "a")
    async with replica(tmp_path) as one:
        one.played.end("a")
        await until(lambda: ended(one.store, "a"))
    assert one.played.asked == [("a", 1, True, False)]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}"], ids=["empty", "no object", "no request"])
async def test_a_request_that_cannot_be_read_ends_with_words(tmp_path: Path, body: bytes) -> None:
    async with replica(tmp_path) as one:
        await accepted(one.store, "a", body=body)
        await until(lambda: ended(one.store, "a"))
        operation = await one.store.get(INSTANCE, "a")
    assert operation is not None
    assert operation.result is not None
    assert (operation.status, operation.result.completion) == ("Failed", INTERRUPTED)
    assert one.played.asked == []


async def test_who_stops_gives_its_turns_up_without_an_end(tmp_path: Path) -> None:
    async with replica(tmp_path, Pace(lease=3600.0, look=3600.0)) as one:
        await one.start("a")
        await one.begun("a")
    assert one.played.left == ["a"]
    async with replica(tmp_path, Pace(lease=3600.0, look=0.05)) as two:
        two.played.end("a")
        await until(lambda: ended(two.store, "a"))
        assert await status(two.store, "a") == "Completed"
    assert two.played.asked == [("a", 2, True, False)]


async def test_after_the_stop_nothing_is_begun(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        await one.keeper.close()
        await one.start("a")
        await asyncio.sleep(0.05)
        assert await status(one.store, "a") == "InProgress"
    assert one.played.asked == []


async def test_only_some_turns_are_taken_over_at_once(tmp_path: Path) -> None:
    async with SqliteOperations(tmp_path / "o.sqlite") as store:
        for number in range(5):
            await accepted(store, f"t{number}")
    async with replica(tmp_path, Pace(lease=5.0, look=0.05, taken_over=2)) as one:
        await until(lambda: len(one.played.asked) == 2)
        await asyncio.sleep(0.3)
        assert len(one.played.asked) == 2
        one.played.end(*(f"t{number}" for number in range(5)))
        await until(lambda: ended(one.store, "t4"))


async def test_a_failing_store_is_borne_for_a_while(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        one.played.faults = [StoreBusy("busy"), StoreBusy("busy")]
        one.played.end("a")
        await one.start("a")
        await until(lambda: ended(one.store, "a"))
    assert one.played.asked == [("a", 1, False, False), ("a", 1, True, False), ("a", 1, True, False)]


async def test_a_late_result_takes_the_place_of_the_failure(tmp_path: Path) -> None:
    """The sandbox does not answer twice, then it does."""
    async with replica(tmp_path) as one:
        one.played.unanswered = [True, True, False]
        one.played.end("a")
        await one.start("a", "c")
        await until(lambda: ended(one.store, "a"))
        assert await status(one.store, "a") == "Failed"
        await until(lambda: _is_completed(one, "a"))
    assert one.played.asked == [("a", 1, False, False), ("a", 2, True, True), ("a", 3, True, True)]


async def _is_completed(one: Replica, name: str) -> bool:
    return await status(one.store, name) == "Completed"


async def test_a_conversation_that_went_on_is_left_alone(tmp_path: Path) -> None:
    """Its sandbox works for the later turn."""
    async with replica(tmp_path, Pace(late=(0.3, 0.4))) as one:
        one.played.unanswered = [True]
        one.played.end("a")
        await one.start("a", "c")
        await until(lambda: ended(one.store, "a"))
        await one.start("b", "c")
        await one.begun("b")
        await asyncio.sleep(0.6)
    assert [name for name, *_ in one.played.asked] == ["a", "b"]


def test_a_short_lease_is_looked_for_often() -> None:
    assert (pace_of(2.0).look, pace_of(600.0).look) == (2.0, 10.0)
