"""What whoever takes a turn over finds and leaves: the journal, the activity, the effects, the conversation."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from context_client import UserIdentity
from orchestration_service.conversations import go_on_from, rewound
from orchestration_service.course import Course, Follower
from orchestration_service.errors import SandboxUnavailable, StoreBusy, StoreFull, TurnUnreadable
from orchestration_service.journal import Opened, read_past
from orchestration_service.keeping import keep_turn
from orchestration_service.ledger import Ledger
from orchestration_service.operations import AcceptedTurn, NewOperation, RecordedStep, SqliteOperations, StatusBoard
from orchestration_service.operations.conversation import SandboxMark
from orchestration_service.planning import Continuing
from orchestration_service.replay import Replayed
from orchestration_service.sessions import Fetched
from tests.orchestration_service.turns import asked, manifest, plan, stored
from workflow_schemas.manifest import SealFacts
from workflow_schemas.plan import Restore

pytestmark = pytest.mark.anyio
INSTANCE, UPN, CONVERSATION = "i", "ann@contoso.example", "c"


@dataclass
class Ground:
    """A store, and the turns of one conversation in it."""

    store: SqliteOperations
    board: StatusBoard

    def ledger(self, operation_id: str, store: Any = None) -> Ledger:
        return Ledger(store or self.store, self.board, operation_id, None)

    async def course(self, number: int, *, late: bool = False) -> Course:
        """A course that has read the conversation as it stands."""
        about = {"instance_id": INSTANCE, "upn": UPN, "conversation_id": CONVERSATION, "agent_name": "a", "fingerprint": "f"}
        operation = (await self.store.create(NewOperation.model_validate({"operation_id": f"op-{number}", **about}))).operation
        assert operation.turn_number == number
        identity = UserIdentity(upn=UPN)
        turn = AcceptedTurn(operation=operation, request=asked(), identity=identity, identity_header=identity.to_header())
        course = Course(turn, self.ledger(operation.operation_id), late=late)
        course.planned = plan(turn.request)
        course.session = Hold()  # type: ignore[assignment]  # only its name is asked for
        course.conversation = await self.store.conversation(INSTANCE, UPN, CONVERSATION)
        return course

    async def sealed(self, course: Course) -> None:
        """Let a turn end with a seal."""
        number = course.turn.operation.turn_number
        facts = SealFacts(index_sha256=f"{number}" * 64, tree_sha256="0" * 64, parts=(f"turn-{number}.tar",), entries=1, new_bytes=1)
        told = manifest(turn_number=number, seal=facts.model_dump(), generation="g")
        await keep_turn(course, self.store, told, [stored(f"turn-{number}.tar", "seal")])

    async def lost(self, course: Course) -> None:
        """Let a turn lose its sandbox."""
        await keep_turn(course, self.store, manifest(turn_number=course.turn.operation.turn_number, end_reason="sandbox_lost"), [])

    async def shape(self) -> tuple[int, list[tuple[int, int, str]]]:
        """The head of the conversation, and its turns with their parents and ends."""
        known = await self.store.conversation(INSTANCE, UPN, CONVERSATION)
        assert known is not None
        return known.head_turn, [(turn.turn_number, turn.parent_turn, turn.end_reason) for turn in known.turns]


class Hold:
    session_id = "s"


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with SqliteOperations(tmp_path / "o.sqlite") as store, StatusBoard(store, instance_id=INSTANCE) as board:
        yield Ground(store, board)


async def test_a_turn_is_entered_once(ground: Ground) -> None:
    course = await ground.course(1)
    await ground.sealed(course)
    await ground.sealed(course)
    await ground.sealed(await ground.course(1))
    assert await ground.shape() == (1, [(1, 0, "completed")])


async def test_a_lost_turn_leaves_the_head_where_it_was(ground: Ground) -> None:
    """Nothing of it was sealed: the next turn goes on from the one before."""
    await ground.sealed(await ground.course(1))
    await ground.lost(await ground.course(2))
    assert await ground.shape() == (1, [(1, 0, "completed"), (2, 1, "sandbox_lost")])


async def test_a_refused_turn_leaves_head_and_sandbox_where_they_were(ground: Ground) -> None:
    """Nothing was executed: the sandbox is still the one the head has left."""
    await ground.sealed(await ground.course(1))
    kept = await keep_turn(await ground.course(2), ground.store, manifest(turn_number=2, end_reason="refused", generation="g"), [])
    assert await ground.shape() == (1, [(1, 0, "completed"), (2, 1, "refused")])
    assert kept.sandbox == SandboxMark(session_id="s", generation="g")


async def test_after_a_refused_first_turn_the_next_one_begins_with_all_files(ground: Ground) -> None:
    kept = await keep_turn(await ground.course(1), ground.store, manifest(turn_number=1, end_reason="refused", generation="g"), [])
    assert (kept.sandbox, go_on_from(kept, live=False)) == (None, None)


async def test_a_late_result_becomes_the_head(ground: Ground) -> None:
    await ground.sealed(await ground.course(1))
    await ground.lost(await ground.course(2))
    await ground.sealed(await ground.course(2, late=True))
    assert await ground.shape() == (2, [(1, 0, "completed"), (2, 1, "completed")])


async def test_a_late_result_moves_nothing_when_the_conversation_went_on(ground: Ground) -> None:
    await ground.sealed(await ground.course(1))
    await ground.lost(await ground.course(2))
    await ground.sealed(await ground.course(3))
    await ground.sealed(await ground.course(2, late=True))
    assert await ground.shape() == (3, [(1, 0, "completed"), (3, 1, "completed"), (2, 1, "completed")])


async def test_a_conversation_that_was_changed_meanwhile_is_read_again(ground: Ground) -> None:
    """A rewind from elsewhere while the turn ran: the turn is entered all the same, after what is the head now."""
    await ground.sealed(await ground.course(1))
    await ground.sealed(await ground.course(2))
    course = await ground.course(3)
    await ground.store.save_conversation(rewound(course.conversation, 1))
    await ground.sealed(course)
    assert await ground.shape() == (3, [(1, 0, "completed"), (2, 1, "completed"), (3, 1, "completed")])


def event(number: int) -> dict[str, Any]:
    return {"type": "text", "seq": 0, "at": 1.5 + number, "content": f"event {number}"}


@pytest.mark.parametrize("shown", [0, 1, 2, 3])
async def test_stored_events_are_shown_exactly_once(ground: Ground, shown: int) -> None:
    """However many of them the earlier owner had shown, among events of its own."""
    course = await ground.course(1)
    for number in range(shown):
        await course.ledger.append_events([event(number), {"type": "progress", "at": 9.0, "step": "open", "message": "Ours."}])
    follower = Follower(ground.board, course.ledger, "op-1")
    for _ in range(2):
        await follower.take_up(Replayed(events=[event(number) for number in range(3)]))
    texts = [one["content"] for one in await course.ledger.events() if one["type"] == "text"]
    assert texts == ["event 0", "event 1", "event 2"]


async def test_an_effect_that_ended_is_not_repeated(ground: Ground) -> None:
    ledger = (await ground.course(1)).ledger
    done: list[int] = []

    async def effect() -> dict[str, Any]:
        done.append(1)
        return {"count": len(done)}

    async def failing() -> dict[str, Any]:
        raise SandboxUnavailable("not now")

    with pytest.raises(SandboxUnavailable):
        await ledger.once("collect", failing)
    found = [await ledger.once("collect", effect) for _ in range(2)]
    assert [(one.outcome, one.maybe_twice) for one in found] == [({"count": 1}, True), ({"count": 1}, False)]


@dataclass
class Busy:
    """A store that fails some times first."""

    store: SqliteOperations
    faults: list[Exception] = field(default_factory=list)

    async def record_messages(self, *given: Any) -> int:
        if self.faults:
            raise self.faults.pop(0)
        return await self.store.record_messages(*given)


async def test_a_busy_store_costs_no_answer_and_a_full_one_is_told(ground: Ground) -> None:
    busy = Busy(ground.store, [StoreBusy("busy"), StoreFull("full")])
    ledger = ground.ledger("op-1", busy)
    with pytest.raises(StoreFull):
        await ledger.record_messages("run", "in", [(1, "say", b"x")])
    assert await ledger.record_messages("run", "in", [(1, "say", b"x")]) == 1


def line(step: str, **data: Any) -> RecordedStep:
    return RecordedStep(step=step, data=data, recorded_at=datetime.now(UTC))


def test_the_journal_gives_back_what_was_decided() -> None:
    going_on = Continuing(agent_session_id="0a", restore=Restore(turn_number=1, archives=("a.tar",), index_sha256="0" * 64))
    for continuing in (None, Continuing(), going_on):
        opened = Opened.after("s", "u", continuing, ("The sandbox is small.",))
        past = read_past([line("open", run_id="r"), line("run", **opened.model_dump(mode="json"))])
        assert (past.run_id, past.opened) == ("r", opened)
        assert opened.continuing == continuing


def test_a_run_that_is_begun_anew_counts_from_there() -> None:
    opened = Opened.after("s", "u", None).model_dump(mode="json")
    past = read_past([line("open", run_id="one"), line("run", **opened), line("open", run_id="two")])
    assert (past.run_id, past.opened) == ("two", None)


@pytest.mark.parametrize(
    "steps",
    [[line("open")], [line("run", session_id="s")], [line("answer", receipt={})], [line("resume")]],
    ids=["no run", "half a session", "no receipt", "no place"],
)
def test_a_journal_without_sense_is_told(steps: list[RecordedStep]) -> None:
    with pytest.raises(TurnUnreadable, match="send the message again"):
        read_past(steps)


def test_only_standing_still_is_being_stuck() -> None:
    still = [line("resume", place="here")] * 5
    assert read_past(still).is_stuck("here")
    assert not read_past(still).is_stuck("further")
    assert not read_past([*still[1:], line("resume", place="elsewhere")]).is_stuck("here")


@pytest.mark.parametrize("outcome", [{}, {"records": [{}], "refused": [], "repeatable": True}, {"records": 1}])
def test_an_outcome_without_sense_is_told(outcome: dict[str, Any]) -> None:
    with pytest.raises(TurnUnreadable):
        Fetched.from_outcome(outcome)
