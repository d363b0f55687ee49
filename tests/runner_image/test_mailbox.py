"""The runner's end of the mailbox on a real file: durable, in order, awake when it has to be."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiosqlite
import pytest

from runner_image.mailbox import EVENT_DELAY_SECONDS, Mailbox, open_mailboxes
from workflow_schemas.mailbox import MAX_FRAME_BYTES, MAX_PART_BYTES, Exchange, Message, Reply

pytestmark = pytest.mark.anyio
RUN = "run-12345678"


@asynccontextmanager
async def opened(folder: Path, run: str = RUN) -> AsyncIterator[Mailbox]:
    async with open_mailboxes(folder / "mailbox.sqlite", "here") as mailboxes:
        yield await mailboxes.open(run)


@pytest.fixture
async def mailbox(tmp_path: Path) -> AsyncIterator[Mailbox]:
    async with opened(tmp_path) as found:
        yield found


def say(first: int, *kinds: str, ack: int = 0, wait: float = 0.0) -> Exchange:
    messages = tuple(Message.model_validate({"seq": first + number, "kind": kind}) for number, kind in enumerate(kinds))
    return Exchange(run_id=RUN, ack=ack, messages=messages, wait_seconds=wait)


def told(reply: Reply) -> list[tuple[int, str]]:
    return [(message.seq, message.kind) for message in reply.messages]


async def timed(mailbox: Mailbox, exchange: Exchange) -> tuple[Reply, float]:
    since = time.monotonic()
    return await mailbox.exchange(exchange), time.monotonic() - since


async def test_messages_are_numbered_and_repeated_until_they_are_acknowledged(mailbox: Mailbox) -> None:
    for _ in range(3):
        await mailbox.post("event", {"type": "text"})
    assert told(await mailbox.exchange(say(1))) == [(1, "event"), (2, "event"), (3, "event")]
    assert told(await mailbox.exchange(say(1, ack=2))) == [(3, "event")]
    assert told(await mailbox.exchange(say(1, ack=3))) == []


async def test_a_message_that_comes_twice_arrives_once(mailbox: Mailbox) -> None:
    for exchange in (say(1, "start", "say"), say(1, "start", "say"), say(2, "say", "stop"), say(1, "start")):
        reply = await mailbox.exchange(exchange)
    assert reply.ack == 3
    assert [(await mailbox.receive()).kind for _ in range(3)] == ["start", "say", "stop"]


async def test_a_gap_is_not_taken(mailbox: Mailbox) -> None:
    """A later message waits until the earlier one has come; the acknowledgement says so."""
    assert (await mailbox.exchange(say(2, "say"))).ack == 0
    assert (await mailbox.exchange(say(1, "start"))).ack == 1
    assert (await mailbox.exchange(say(3, "stop"))).ack == 1


async def test_everything_is_there_again_after_a_crash(tmp_path: Path) -> None:
    big = bytes(range(256)) * 5000
    async with opened(tmp_path) as first:
        await first.exchange(Exchange(run_id=RUN, messages=(Message(seq=1, kind="start", body={"plan": {"turn_number": 4}}),)))
        await first.exchange(say(2, "say"))
        await first.post("event", {"content": "ü\ud83d"})
        await first.post("model_request", {"call_id": "1"}, big)
    async with opened(tmp_path) as second:
        assert second.start == {"plan": {"turn_number": 4}}
        assert [(await second.receive()).kind for _ in range(2)] == ["start", "say"]
        await second.post("final", {})
        reply, seconds = await timed(second, say(2, "say", "stop", wait=20))
        assert told(reply) == [(1, "event"), (2, "part"), (3, "model_request"), (4, "final")]
        assert reply.messages[0].body == {"content": "ü\ud83d"}
        assert reply.messages[1].data + reply.messages[2].data == big
        assert (reply.ack, second.finished, seconds < 1) == (3, True, True)
    async with opened(tmp_path, "run-another1") as other:
        assert (other.finished, other.start) == (False, {})
        assert told(await other.exchange(say(1))) == []


@pytest.mark.parametrize("kind", ["model_request", "final"])
async def test_an_urgent_message_ends_a_wait_at_once(mailbox: Mailbox, kind: str) -> None:
    waiting = asyncio.create_task(timed(mailbox, say(1, wait=20)))
    await asyncio.sleep(0.05)
    await mailbox.post(kind, {})
    reply, seconds = await waiting
    assert told(reply) == [(1, kind)]
    assert seconds < 0.05 + EVENT_DELAY_SECONDS / 2


async def test_events_wait_a_moment_for_company(mailbox: Mailbox) -> None:
    waiting = asyncio.create_task(timed(mailbox, say(1, wait=20)))
    await asyncio.sleep(0.02)
    for _ in range(4):
        await mailbox.post("event", {})
        await asyncio.sleep(0.02)
    reply, seconds = await waiting
    assert len(reply.messages) == 4
    assert EVENT_DELAY_SECONDS * 0.9 < seconds < EVENT_DELAY_SECONDS + 0.15


async def test_events_whose_reply_was_lost_do_not_wait_again(mailbox: Mailbox) -> None:
    await mailbox.post("event", {})
    await mailbox.exchange(say(1, wait=20))
    reply, seconds = await timed(mailbox, say(1, wait=20))
    assert told(reply) == [(1, "event")]
    assert seconds < EVENT_DELAY_SECONDS / 2


async def test_a_wait_ends_when_its_time_is_up(mailbox: Mailbox) -> None:
    reply, seconds = await timed(mailbox, say(1, "start", wait=0.1))
    assert (told(reply), reply.status, reply.ack) == ([], "ok", 1)
    assert 0.09 < seconds < 0.3


async def test_a_newer_exchange_takes_over_the_wait(mailbox: Mailbox) -> None:
    older = asyncio.create_task(timed(mailbox, say(1, wait=20)))
    await asyncio.sleep(0.02)
    newer = asyncio.create_task(timed(mailbox, say(1, "start", wait=20)))
    reply, seconds = await older
    assert (reply.status, told(reply), seconds < 0.2) == ("superseded", [], True)
    await mailbox.post("final", {})
    assert told((await newer)[0]) == [(1, "final")]


async def test_an_abandoned_wait_hurts_nobody(mailbox: Mailbox) -> None:
    abandoned = asyncio.create_task(mailbox.exchange(say(1, wait=20)))
    await asyncio.sleep(0.02)
    abandoned.cancel()
    await mailbox.post("final", {})
    assert told(await mailbox.exchange(say(1, wait=20))) == [(1, "final")]


async def test_a_large_attachment_goes_over_several_exchanges(mailbox: Mailbox) -> None:
    whole = bytes(10 * MAX_PART_BYTES + 17)
    await mailbox.post("model_request", {"call_id": "1"}, whole)
    got, ack, replies = b"", 0, 0
    while len(got) < len(whole):
        reply = await mailbox.exchange(say(1, ack=ack, wait=5))
        assert sum(len(message.data) for message in reply.messages) <= MAX_FRAME_BYTES
        got += b"".join(message.data for message in reply.messages)
        ack, replies = reply.messages[-1].seq, replies + 1
        assert reply.more == (len(got) < len(whole))
    assert (got, replies) == (whole, 4)


async def test_parts_of_the_service_arrive_whole(mailbox: Mailbox) -> None:
    parts = [Message(seq=1, kind="part", data=b"a" * 10), Message(seq=2, kind="part", data=b"b")]
    await mailbox.exchange(Exchange(run_id=RUN, messages=tuple(parts)))
    await mailbox.exchange(Exchange(run_id=RUN, messages=(Message(seq=3, kind="model_answer", body={"call_id": "1"}, data=b"c"),)))
    message = await mailbox.receive()
    assert (message.kind, message.data) == ("model_answer", b"a" * 10 + b"bc")


async def test_a_message_that_was_given_up_leaves_no_trace(tmp_path: Path) -> None:
    """Its number is used again, for the message that leaves; a crash afterwards does not bring the other one back."""
    async with opened(tmp_path) as first:
        for attempt in range(20):
            posting = asyncio.create_task(first.post("event", {"given": "up", "x": "y" * 5 * MAX_PART_BYTES * (attempt % 2)}))
            for _ in range(attempt):
                await asyncio.sleep(0)
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)
        await first.post("final", {})
        before = (await first.exchange(say(1))).messages
    async with opened(tmp_path) as second:
        assert (await second.exchange(say(1))).messages == before


async def test_an_event_without_measure_becomes_a_warning(mailbox: Mailbox) -> None:
    await mailbox.post("event", {"seq": 3, "type": "text", "content": "x" * 2 * MAX_PART_BYTES})
    (message,) = (await mailbox.exchange(say(1))).messages
    assert (message.body["type"], message.body["seq"]) == ("warning", 3)
    assert "left out" in message.body["message"]


async def test_a_full_disk_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "mailbox.sqlite"
    async with aiosqlite.connect(path) as database:
        await database.executescript("PRAGMA journal_mode=WAL; PRAGMA page_size=4096; CREATE TABLE filler (x);")
    async with open_mailboxes(path, "here") as mailboxes:
        mailbox = await mailboxes.open(RUN)
        mailboxes._store._database.execute("PRAGMA max_page_count=20")
        for _ in range(5):
            await mailbox.post("model_request", {}, bytes(100_000))
        await mailbox.exchange(say(1, "stop"))
        await mailbox.post("final", {})
        assert [kind for _, kind in told(await mailbox.exchange(say(1)))] == ["model_request"] * 5 + ["final"]
        assert (await mailbox.receive()).kind == "stop"
    assert "could not be written down" in caplog.text


async def test_runs_are_kept_apart_and_forgotten_for_good(tmp_path: Path) -> None:
    async with open_mailboxes(tmp_path / "m", "here") as mailboxes:
        one, other = await mailboxes.open("one"), await mailboxes.open("other")
        await asyncio.gather(*(box.post("event", {"of": box.run_id}) for box in (one, other) for _ in range(20)))
        assert {message.body["of"] for message in (await one.exchange(say(1))).messages} == {"one"}
        await mailboxes.forget("one")
        assert await mailboxes.runs() == ["other"]
        assert (await mailboxes.is_forgotten("one"), await mailboxes.is_forgotten("other")) == (True, False)
