"""The service's end of the mailbox against the runner's real one, over a link that loses, repeats, delays and reorders."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.errors import SandboxLost, SandboxUnavailable
from orchestration_service.letters import ModelReply, ModelRequest
from orchestration_service.pump import WAIT_SECONDS, Pump
from runner_image.mailbox import Mailbox, open_mailboxes
from runner_image.relay import ModelCalls
from runner_image.runner import Runner
from workflow_schemas.delta import Bodies, compress, digest
from workflow_schemas.mailbox import Exchange, Message, Reply, decode_reply, encode
from workflow_schemas.manifest import RunManifest
from workflow_schemas.plan import TurnPlan

pytestmark = pytest.mark.anyio
RUN = "run-12345678"
PATIENCE_SECONDS = 45.0
PLAN = {
    "run_id": RUN,
    "turn_number": 1,
    "prompt": "p",
    "system_prompt": "s",
    "model": "m",
    "tools": [],
    "output_stem": "turn-001",
    "limits": {
        "soft_seconds": 1,
        "hard_seconds": 2,
        "max_turns": 1,
        "command_timeout_seconds": 1,
        "max_output_bytes": 1024,
        "max_unpacked_bytes": 1024,
    },
}
MANIFEST = RunManifest(run_id=RUN, turn_number=1, end_reason="completed").model_dump(mode="json")


class Log:
    """Keeps messages like the operation store, and sees when a number is used twice for different things."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], tuple[str, bytes]] = {}

    async def record_messages(self, run_id: str, direction: Any, messages: Sequence[tuple[int, str, bytes]]) -> int:
        assert run_id == RUN
        for seq, kind, body in messages:
            assert self.kept.setdefault((direction, seq), (kind, body)) == (kind, body)
        return len(messages)

    def numbers(self, direction: str) -> list[int]:
        return sorted(seq for found, seq in self.kept if found == direction)


@dataclass
class Link:
    """Carries frames to a runner in this process, with faults by chance."""

    runner: Runner
    chance: random.Random = field(default_factory=random.Random)
    faults: float = 0.0
    exchanges: int = 0
    failed: int = 0
    late: set[asyncio.Task[str]] = field(default_factory=set)

    async def exchange(self, exchange: Exchange) -> Reply:
        self.exchanges += 1
        line = encode(exchange)
        if self.chance.random() < self.faults:
            await asyncio.sleep(self.chance.random() * 0.01)
        if self.chance.random() < self.faults:
            task = asyncio.create_task(self._later(line))
            self.late.add(task)
            task.add_done_callback(self.late.discard)
        if self.chance.random() < self.faults:
            raise self._lost("on the way there")
        reply = decode_reply(await self.runner.answer(line))
        if self.chance.random() < self.faults:
            raise self._lost("on the way back")
        if self.chance.random() < self.faults:
            await asyncio.sleep(self.chance.random() * 0.01)
        return reply

    async def _later(self, line: str) -> str:
        await asyncio.sleep(self.chance.random() * 0.2)
        return await self.runner.answer(line)

    def _lost(self, where: str) -> SandboxUnavailable:
        self.failed += 1
        return SandboxUnavailable(f"lost {where}")


@asynccontextmanager
async def runner(folder: Path, work: Callable[[Mailbox, ModelCalls], Awaitable[None]]) -> AsyncIterator[Runner]:
    """The real runner and mailbox; instead of an agent, a function works with the mailbox."""

    async def carry_out(plan: TurnPlan, mailbox: Mailbox) -> None:
        calls = ModelCalls(mailbox)
        listening = asyncio.create_task(listen(mailbox, calls))
        try:
            await work(mailbox, calls)
            await mailbox.post("final", {"manifest": MANIFEST})
        finally:
            listening.cancel()

    async with open_mailboxes(folder / "m", "here") as mailboxes:
        found = Runner(mailboxes, "here", carry_out)
        try:
            yield found
        finally:
            await found.close()


async def listen(mailbox: Mailbox, calls: ModelCalls) -> None:
    while True:
        await calls.take(await mailbox.receive())


def pump(
    link: Any,
    call_model: Callable[[ModelRequest], Awaitable[ModelReply]],
    events: list[dict[str, Any]],
    log: Log | None = None,
    **more: Any,
) -> Pump:
    async def on_events(fresh: list[dict[str, Any]]) -> None:
        events.extend(fresh)

    return Pump(RUN, session=link, log=log or Log(), call_model=call_model, on_events=on_events, pause_seconds=0.01, **more)


async def echo(request: ModelRequest) -> ModelReply:
    return ModelReply(200, {"digest": digest(request.body), "text": "é" * 100})


def event(number: int) -> dict[str, Any]:
    return {"type": "text", "seq": number, "content": f"event {number}"}


@pytest.mark.parametrize("memory", [32 * 1024 * 1024, 1], ids=["bases kept", "bases forgotten"])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_nothing_is_lost_or_doubled(tmp_path: Path, seed: int, memory: int) -> None:
    """Twenty conversations at once, 2,000 messages, a fifth of all steps disturbed."""
    chance, log, events, asked = random.Random(seed), Log(), list[dict[str, Any]](), list[str]()

    async def call_model(request: ModelRequest) -> ModelReply:
        asked.append(digest(request.body))
        await asyncio.sleep(chance.random() * 0.005)
        return await echo(request)

    async def conversation(number: int, mailbox: Mailbox, calls: ModelCalls) -> None:
        messages = [f"conversation {number} " * 20]
        for turn in range(20):
            messages.append(f"{number}-{turn} " + chance.randbytes(50).hex())
            body = json.dumps(messages).encode()
            status, answer, _ = await calls.call("/v1/messages", {}, body)
            assert (status, answer["digest"]) == (200, digest(body))
            async with numbering:
                for _ in range(3):
                    numbers.append(len(numbers) + 1)
                    await mailbox.post("event", event(numbers[-1]))

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(conversation(number, mailbox, calls))

    numbers, numbering = list[int](), asyncio.Lock()
    async with runner(tmp_path, work) as found:
        link = Link(found, chance, faults=0.2)
        following = pump(link, call_model, events, log)
        following._bodies = Bodies(max_bytes=memory)
        await following.post("start", {"plan": PLAN})
        manifest = await following.follow()
        link.faults = 0
        await following.release()
        await asyncio.gather(*link.late)

    assert manifest.end_reason == "completed"
    assert [found["seq"] for found in events] == list(range(1, 1201))
    assert (len(asked), len(set(asked))) == (400, 400)
    for direction in ("in", "out"):
        assert log.numbers(direction) == list(range(1, len(log.numbers(direction)) + 1))
    assert len(log.kept) >= 2000
    assert link.failed > 10
    assert any(kind == "resend" for kind, _ in log.kept.values()) == (memory == 1)


async def test_a_forgotten_base_is_asked_for_again(tmp_path: Path) -> None:
    bodies = [b"first " * 200 + bytes([65 + number]) for number in range(2)]
    got: list[bytes] = []

    async def call_model(request: ModelRequest) -> ModelReply:
        got.append(request.body)
        following._bodies = Bodies()
        return await echo(request)

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        for body in bodies:
            assert (await calls.call("/v1/messages", {"anthropic-beta": "x"}, body))[0] == 200

    log = Log()
    async with runner(tmp_path, work) as found:
        following = pump(Link(found), call_model, [], log)
        await following.post("start", {"plan": PLAN})
        await following.follow()
    assert got == bodies
    assert [kind for kind, _ in log.kept.values()].count("resend") == 1


async def test_a_turn_takes_few_exchanges(tmp_path: Path) -> None:
    """A quick answer goes out with the exchange that asks for more; events ride along."""

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        for number in range(8):
            await mailbox.post("event", event(number))
            await calls.call("/v1/messages", {}, f"call {number}".encode())

    events: list[dict[str, Any]] = []
    async with runner(tmp_path, work) as found:
        link = Link(found)
        following = pump(link, echo, events)
        await following.post("start", {"plan": PLAN})
        await following.follow()
    assert len(events) == 8
    assert link.exchanges <= 10


async def test_large_answers_do_not_wait_for_the_long_poll(tmp_path: Path) -> None:
    """More than one frame's worth of parts goes out as fast as it is acknowledged."""
    noise = random.Random(1).randbytes(5 * 1024 * 1024).hex()
    lengths: list[int] = []

    async def call_model(request: ModelRequest) -> ModelReply:
        return ModelReply(200, {"text": noise})

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        lengths.append(len((await calls.call("/v1/messages", {}, b"{}"))[1]["text"]))

    since = time.monotonic()
    async with runner(tmp_path, work) as found:
        following = pump(Link(found), call_model, [])
        await following.post("start", {"plan": PLAN})
        await following.follow()
    assert lengths == [len(noise)]
    assert time.monotonic() - since < WAIT_SECONDS


async def test_events_are_heard_while_the_model_thinks(tmp_path: Path) -> None:
    heard = asyncio.Event()

    async def call_model(request: ModelRequest) -> ModelReply:
        await heard.wait()
        return await echo(request)

    async def on_events(fresh: list[dict[str, Any]]) -> None:
        heard.set()

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        call = asyncio.create_task(calls.call("/v1/messages", {}, b"{}"))
        await asyncio.sleep(0.1)
        await mailbox.post("event", event(1))
        await call

    async with runner(tmp_path, work) as found, asyncio.timeout(5):
        following = Pump(RUN, session=Link(found), log=Log(), call_model=call_model, on_events=on_events)
        await following.post("start", {"plan": PLAN})
        await following.follow()


async def test_a_stop_goes_out_at_once(tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def carry_out(plan: TurnPlan, mailbox: Mailbox) -> None:
        while (await mailbox.receive()).kind != "stop":
            pass
        stopped.set()
        await mailbox.post("final", {"manifest": MANIFEST})

    async with open_mailboxes(tmp_path / "m", "here") as mailboxes:
        found = Runner(mailboxes, "here", carry_out)
        following = pump(Link(found), echo, [])
        await following.post("start", {"plan": PLAN})
        waiting = asyncio.create_task(following.follow())
        await asyncio.sleep(0.1)
        since = time.monotonic()
        await following.post("stop", {"reason": "interrupted"})
        await waiting
        assert stopped.is_set()
        assert time.monotonic() - since < WAIT_SECONDS / 2


async def test_a_failing_store_or_broker_ends_the_following(tmp_path: Path) -> None:
    """The runner would wait for an answer until its deadline."""

    async def call_model(request: ModelRequest) -> ModelReply:
        raise OSError("the store is full")

    async def work(mailbox: Mailbox, calls: ModelCalls) -> None:
        await calls.call("/v1/messages", {}, b"{}")

    async with runner(tmp_path, work) as found:
        following = pump(Link(found), call_model, [])
        await following.post("start", {"plan": PLAN})
        with pytest.raises(OSError, match="full"):
            async with asyncio.timeout(5):
                await following.follow()


class Answers:
    """A sandbox that gives prepared answers, the last one for ever."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self._replies = list(replies)

    async def exchange(self, exchange: Exchange) -> Reply:
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        await asyncio.sleep(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def here(*messages: Message, **more: Any) -> Reply:
    return Reply(generation="here", ack=1, messages=messages, **more)


def one(kind: str, body: dict[str, Any], data: bytes = b"") -> Reply:
    return here(Message.model_validate({"seq": 1, "kind": kind, "body": body, "data": data}))


REQUEST = {"call_id": "1", "path": "/v1/messages", "headers": {}, "digest": digest(b"body"), "base": ""}


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ([Reply(generation="here", status="unknown_run")], "replaced"),
        ([Reply(generation="here", status="wrong_generation")], "replaced"),
        ([here(), Reply(generation="elsewhere")], "replaced"),
        ([one("final", {})], "no sense"),
        ([one("final", {"manifest": {"run_id": RUN}})], "no sense"),
        ([one("final", {"manifest": MANIFEST | {"run_id": "another"}})], "another run"),
        ([one("model_request", {})], "no sense"),
        ([one("model_request", REQUEST | {"headers": []})], "no sense"),
        ([one("model_request", REQUEST, b"not compressed")], "no sense"),
        ([one("model_request", REQUEST, compress(b"another body"))], "no sense"),
    ],
    ids=[
        "unknown",
        "wrong",
        "changed",
        "no manifest",
        "half a manifest",
        "foreign manifest",
        "empty request",
        "bad headers",
        "damaged",
        "hash",
    ],
)
async def test_a_sandbox_that_is_not_ours_any_more_is_lost(replies: list[Reply | Exception], words: str) -> None:
    following = pump(Answers(*replies), echo, [])
    await following.post("start", {"plan": PLAN})
    with pytest.raises(SandboxLost, match=words):
        await following.follow()


@pytest.mark.parametrize(
    ("expected", "replies", "never_started"),
    [
        pytest.param("here", [Reply(generation="elsewhere", status="wrong_generation")], True, id="replaced before"),
        pytest.param("here", [here(), Reply(generation="elsewhere", status="wrong_generation")], False, id="replaced midway"),
        pytest.param("", [Reply(generation="elsewhere", status="wrong_generation")], False, id="nothing was expected"),
    ],
)
async def test_a_run_starts_in_the_sandbox_it_is_meant_for(expected: str, replies: list[Reply | Exception], never_started: bool) -> None:
    """One that was replaced before can be begun anew; a hostile one cannot have that for ever."""
    following = pump(Answers(*replies), echo, [], expected=expected)
    await following.post("start", {"plan": PLAN})
    with pytest.raises(SandboxLost) as caught:
        await following.follow()
    assert caught.value.never_started is never_started


async def test_what_was_heard_before_the_sandbox_was_replaced_is_told() -> None:
    """It often names the reason: out of memory, idle for too long."""
    following = pump(Answers(here(), SandboxUnavailable("it was idle for 300 s"), Reply(generation="elsewhere")), echo, [])
    await following.post("start", {"plan": PLAN})
    with pytest.raises(SandboxLost, match="idle for 300 s"):
        await following.follow()


async def test_a_refusal_is_passed_on() -> None:
    following = pump(Answers(Reply(generation="here", status="refused", detail="no room")), echo, [])
    await following.post("start", {"plan": PLAN})
    with pytest.raises(SandboxUnavailable, match="no room"):
        await following.follow()


async def test_a_sandbox_that_never_answered_is_given_up_soon() -> None:
    since = time.monotonic()
    following = pump(Answers(SandboxUnavailable("no such session")), echo, [], patience_seconds=PATIENCE_SECONDS)
    await following.post("start", {"plan": PLAN})
    with pytest.raises(SandboxUnavailable, match="no such session"):
        await following.follow()
    assert time.monotonic() - since < PATIENCE_SECONDS / 2


async def test_events_without_shape_become_warnings() -> None:
    """What comes out of a sandbox is shown to people and read by our own code; neither may stumble."""
    events: list[dict[str, Any]] = []
    odd: list[dict[str, Any]] = [{}, {"type": "nonsense"}, {"type": "text"}, {"type": "tool_start", "name": "x", "input": [1]}]
    messages = [Message(seq=1 + at, kind="event", body=body) for at, body in enumerate([*odd, event(5)])]
    final = Message(seq=6, kind="final", body={"manifest": MANIFEST})
    following = pump(Answers(here(*messages, final)), echo, events)
    await following.post("start", {"plan": PLAN})
    await following.follow()
    assert [found["type"] for found in events] == ["warning"] * 4 + ["text"]
    assert events[4]["content"] == "event 5"


async def test_numbers_out_of_order_are_not_taken() -> None:
    events: list[dict[str, Any]] = []
    ahead = here(Message(seq=2, kind="event", body=event(2)))
    both = here(Message(seq=1, kind="event", body=event(1)), Message(seq=2, kind="final", body={"manifest": MANIFEST}))
    following = pump(Answers(ahead, both), echo, events)
    await following.post("start", {"plan": PLAN})
    await following.follow()
    assert [found["seq"] for found in events] == [1]
