"""A run is taken up from its stored messages, at any moment, against the runner's real mailbox and relay."""

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.errors import SandboxLost, SandboxUnavailable
from orchestration_service.journal import read_past
from orchestration_service.letters import ModelReply, ModelRequest, Nonsense, stored
from orchestration_service.operations.model import StoredMessage
from orchestration_service.pump import Pump
from orchestration_service.replay import Replayed, replay
from runner_image.mailbox import Mailbox, open_mailboxes
from runner_image.relay import ModelCalls
from runner_image.runner import Runner
from tests.orchestration_service.test_pump import MANIFEST, PLAN, RUN, Link, event, runner
from workflow_schemas.delta import digest
from workflow_schemas.mailbox import Exchange, Message
from workflow_schemas.usage import Usage

pytestmark = pytest.mark.anyio

USAGE = {"input_tokens": 10, "output_tokens": 3}


class Power(Exception):
    """The process dies here."""


class Log:
    """Keeps messages like the operation store; after so many writes, the process that writes is gone."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], StoredMessage] = {}
        self.writes = 0
        self.dies_at = 0
        self.run_id = RUN

    def begin_anew(self) -> None:
        """Another run, as the pipeline does it after one that never started."""
        self.kept.clear()
        self.run_id = f"{RUN}-again"

    async def record_messages(self, run_id: str, direction: Any, messages: Sequence[tuple[int, str, bytes]]) -> int:
        self.writes += 1
        if self.writes == self.dies_at:
            raise Power
        for seq, kind, body in messages:
            assert self.kept.setdefault((direction, seq), StoredMessage(seq, kind, body)).body == body
        if self.writes + 1 == -self.dies_at:
            raise Power
        return len(messages)

    def of(self, direction: str) -> list[StoredMessage]:
        return [message for (found, _), message in sorted(self.kept.items()) if found == direction]

    def replayed(self) -> Replayed:
        return replay(self.run_id, self.of("out"), self.of("in"))


def conversation(number: int) -> list[bytes]:
    """Requests that grow, so that each is sent as a difference to the one before."""
    chance = random.Random(number)
    return [b"".join(chance.randbytes(300).hex().encode() for _ in range(turn + 1)) for turn in range(6)]


@pytest.mark.parametrize("when", ["before", "after"], ids=["before it is stored", "after it is stored"])
async def test_a_process_may_die_at_any_write(tmp_path: Path, when: str) -> None:
    """One after the other at each of its writes; the next one goes on. Nothing is lost, and no answered call is asked again."""
    asked: list[str] = []
    answered: list[str] = []

    async def call_model(request: ModelRequest) -> ModelReply:
        asked.append(digest(request.body))
        return ModelReply(200, {"digest": asked[-1], "usage": USAGE})

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        for number, body in enumerate(conversation(1), 1):
            await mailbox.post("event", event(number))
            status, answer, _ = await calls.call("/v1/messages", {}, body)
            assert (status, answer["digest"]) == (200, digest(body))
            answered.append(answer["digest"])

    log, lives = Log(), 0
    async with runner(tmp_path, work) as found, asyncio.timeout(60):
        while True:
            lives += 1
            log.writes, log.dies_at = 0, 3 if when == "before" else -3
            past = log.replayed()
            events: list[dict[str, Any]] = []

            async def on_events(fresh: list[dict[str, Any]], events: list[dict[str, Any]] = events) -> None:
                events.extend(fresh)

            pump = Pump(log.run_id, session=Link(found), log=log, call_model=call_model, on_events=on_events, past=past, pause_seconds=0.01)
            try:
                if past.sent and not await pump.rejoin():
                    log.begin_anew()
                    continue
                if not past.sent:
                    await pump.post("start", {"plan": {**PLAN, "run_id": log.run_id}})
                manifest = await pump.follow()
            except Power:
                continue
            break
    assert manifest.end_reason == "completed"
    assert answered == [digest(body) for body in conversation(1)]
    assert lives > 4
    again = log.replayed()
    assert again.usage == Usage(model_calls=6, input_tokens=60, output_tokens=18)
    assert [one["seq"] for one in again.events] == list(range(1, 7))
    assert len(asked) - len(set(asked)) < lives, "only the calls that were under way are asked again"


async def test_a_stored_end_needs_no_sandbox() -> None:
    log = Log()
    start, final = Message(seq=1, kind="start", body={}), Message(seq=1, kind="final", body={"manifest": MANIFEST})
    await log.record_messages(RUN, "in", [stored(start)])
    await log.record_messages(RUN, "out", [stored(final)])
    pump = Pump(RUN, session=Nobody(), log=log, call_model=never, on_events=nothing, past=log.replayed())
    assert await pump.rejoin()
    assert (await pump.follow()).end_reason == "completed"


async def test_a_run_that_never_started_says_so(tmp_path: Path) -> None:
    """A start that was stored and never sent must not start anything in a sandbox that may be another one, and not when it comes late."""
    log, start = Log(), Message(seq=1, kind="start", body={"plan": PLAN})
    await log.record_messages(RUN, "in", [stored(start)])
    async with open_mailboxes(tmp_path / "m", "here") as mailboxes:
        found = Runner(mailboxes, "here", unwanted)
        pump = Pump(RUN, session=Link(found), log=log, call_model=never, on_events=nothing, past=log.replayed())
        assert not await pump.rejoin()
        assert (await Link(found).exchange(Exchange(run_id=RUN, messages=(start,)))).status == "unknown_run"
        assert await mailboxes.runs() == []


async def test_a_replaced_sandbox_is_lost_and_starts_nothing(tmp_path: Path) -> None:
    log = Log()
    await log.record_messages(RUN, "in", [stored(Message(seq=1, kind="start", body={"plan": PLAN}))])
    await log.record_messages(RUN, "out", [stored(Message(seq=1, kind="event", body=event(1)))])
    async with open_mailboxes(tmp_path / "m", "elsewhere") as mailboxes:
        found = Runner(mailboxes, "elsewhere", unwanted)
        pump = Pump(RUN, session=Link(found), log=log, call_model=never, on_events=nothing, past=log.replayed())
        with pytest.raises(SandboxLost, match="replaced") as caught:
            await pump.rejoin()
        assert not caught.value.may_answer
        assert await mailboxes.runs() == []


async def test_a_sandbox_that_does_not_answer_may_do_so_later() -> None:
    log = Log()
    pump = Pump(
        RUN,
        session=Nobody(),
        log=log,
        call_model=never,
        on_events=nothing,
        past=Replayed(seen=3),
        pause_seconds=0.01,
        patience_seconds=0.05,
    )
    with pytest.raises(SandboxLost, match="nobody is here") as caught:
        await pump.rejoin()
    assert caught.value.may_answer


async def test_the_parts_of_a_message_that_was_cut_do_no_harm(tmp_path: Path) -> None:
    """A store may keep some parts of a large message and not the last: what follows must not be taken for their end."""
    got: list[dict[str, Any]] = []

    async def call_model(request: ModelRequest) -> ModelReply:
        return ModelReply(200, {"fine": True})

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        got.append((await calls.call("/v1/messages", {}, b"{}"))[1])

    log = Log()
    async with runner(tmp_path, work) as found, asyncio.timeout(20):
        log.dies_at = 3
        first = Pump(RUN, session=Link(found), log=log, call_model=call_model, on_events=nothing)
        await first.post("start", {"plan": PLAN})
        with pytest.raises(Power):
            await first.follow()
        await log.record_messages(RUN, "in", [stored(Message(seq=2, kind="part", data=b"rubbish"))])
        second = Pump(RUN, session=Link(found), log=log, call_model=call_model, on_events=nothing, past=log.replayed())
        assert await second.rejoin()
        await second.follow()
    assert got == [{"fine": True}]


@pytest.mark.parametrize("body", [b"", b"{", b"[]\n", b'{"manifest": 1}\n'], ids=["empty", "cut", "list", "no manifest"])
def test_stored_nonsense_is_named(body: bytes) -> None:
    with pytest.raises(Nonsense):
        replay(RUN, [StoredMessage(1, "final", body)], [])


def test_messages_behind_a_gap_come_again() -> None:
    messages = [StoredMessage(*stored(Message(seq=seq, kind="event", body=event(seq)))) for seq in (1, 2, 4)]
    assert replay(RUN, messages, []).seen == 2


def test_a_journal_that_was_never_written_begins_anew() -> None:
    assert read_past([]).opened is None
    assert json.dumps(read_past([]).run_id)


class Nobody:
    async def exchange(self, exchange: Any) -> Any:
        raise SandboxUnavailable("nobody is here")


async def never(request: ModelRequest) -> ModelReply:
    raise AssertionError("no call of the model is expected")


async def nothing(events: list[dict[str, Any]]) -> None:
    return


async def unwanted(plan: Any, mailbox: Mailbox) -> None:
    raise AssertionError("nothing may be started")
