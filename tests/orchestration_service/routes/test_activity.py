"""The event stream: replay, then live, each event once, and an end."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.orchestration_service.serving import INSTANCE, Service, answer, headers, served, until

pytestmark = pytest.mark.anyio
EVENTS = f"/instances/{INSTANCE}/async-completions/op-1/events"


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


@asynccontextmanager
async def watching(service: Service, **more: Any) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
    """Open the stream and read it frame by frame, as a browser would; comments come with the name ``comment``."""
    async with service.client.stream("GET", EVENTS, **more) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield frames(response.aiter_lines())


async def frames(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, str]]:
    frame: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            frame[name or "comment"] = value
        elif frame:
            if "retry" not in frame:
                yield frame
            frame = {}


async def the_rest(stream: AsyncIterator[dict[str, str]]) -> list[tuple[str, str]]:
    return [(frame.get("id", ""), frame["event"]) async for frame in stream if "event" in frame]


async def test_stored_events_come_first_then_live_ones_then_the_end(service: Service) -> None:
    await service.start()
    await service.board.append_events("op-1", [text("one"), {"type": "tool_start", "name": "Bash"}])
    async with watching(service) as stream:
        first, second = [await anext(stream) for _ in range(2)]
        assert (first["id"], first["event"]) == ("1", "text")
        assert json.loads(first["data"]) == {"type": "text", "content": "one", "seq": 1}
        assert (second["id"], second["event"]) == ("2", "tool_start")
        await service.board.append_events("op-1", [{"type": "done"}])
        await service.board.finish("op-1", "Completed", answer("op-1"))
        assert await the_rest(stream) == [("3", "done"), ("", "end")]


@pytest.mark.parametrize("more", [{"headers": {"Last-Event-ID": "2"}}, {"params": {"after": "2"}}], ids=["header", "query"])
async def test_a_returning_watcher_sees_only_what_is_new(service: Service, more: dict[str, Any]) -> None:
    await service.start()
    await service.board.append_events("op-1", [text("one"), text("two"), text("three")])
    await service.board.finish("op-1", "Completed", answer("op-1"))
    async with watching(service, **more) as stream:
        assert await the_rest(stream) == [("3", "text"), ("", "end")]


async def test_a_watcher_who_has_seen_all_is_told_to_stay_away(service: Service) -> None:
    """A browser reconnects after every end; 204 is what stops it."""
    await service.start()
    await service.board.append_events("op-1", [text("one")])
    await service.board.finish("op-1", "Completed", answer("op-1"))
    assert (await service.client.get(EVENTS, headers={"Last-Event-ID": "1"})).status_code == 204


async def test_an_idle_stream_is_kept_open(service: Service) -> None:
    await service.start()
    async with watching(service) as stream:
        assert await anext(stream) == {"comment": "still here"}


async def test_a_thousand_events_arrive_in_order_while_they_are_written(service: Service) -> None:
    await service.start()

    async def write() -> None:
        for start in range(0, 1000, 50):
            await service.board.append_events("op-1", [text(str(n)) for n in range(start, start + 50)])
        await service.board.finish("op-1", "Completed", answer("op-1"))

    async with anyio.create_task_group() as tasks, watching(service) as stream:
        tasks.start_soon(write)
        seen = await the_rest(stream)
    assert [number for number, _ in seen[:-1]] == [str(n) for n in range(1, 1001)]


async def test_hostile_events_stay_inside_their_frame(service: Service) -> None:
    """An event from a sandbox can neither end its frame, nor name another event, nor break the encoding."""
    await service.start()
    evil = {"type": "x\n\nevent: done", "content": "a\r\n\r\nid: 99\ud83d"}
    await service.board.append_events("op-1", [evil, {"no": "type"}])
    await service.board.finish("op-1", "Completed", answer("op-1"))
    async with watching(service) as stream:
        assert await the_rest(stream) == [("1", "message"), ("2", "message"), ("", "end")]


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        (EVENTS, {"Last-Event-ID": "x"}, 400),
        (EVENTS, {"Last-Event-ID": "-1"}, 400),
        (f"{EVENTS}?after=-1", {}, 400),
        (EVENTS, headers("bob@contoso.com"), 404),
        (EVENTS.replace("op-1", "op-2"), {}, 404),
    ],
    ids=["no-number", "negative-id", "negative", "other-user", "unknown"],
)
async def test_what_cannot_be_watched(service: Service, path: str, sent: dict[str, str], status: int) -> None:
    await service.start()
    response = await service.client.get(path, headers=sent)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_turn_of_another_process_can_be_watched(tmp_path: Path) -> None:
    """The second process reads what the first one writes, and notices the end."""
    async with served(tmp_path) as first, served(tmp_path) as second:
        await first.start()
        await first.board.append_events("op-1", [text("one")])
        async with watching(second) as stream:
            assert (await anext(stream))["id"] == "1"
            await first.board.append_events("op-1", [text("two")])
            await first.board.finish("op-1", "Completed", answer("op-1"))
            assert await the_rest(stream) == [("2", "text"), ("", "end")]


async def test_watchers_who_leave_cost_nothing(service: Service) -> None:
    """Fifty watchers that hang up leave no task behind and the turn goes on."""
    await service.start()
    before = len(anyio.get_running_tasks())
    for _ in range(50):
        async with watching(service):
            pass
    await until(lambda: len(anyio.get_running_tasks()) <= before)
    assert (await service.poll()).status_code == 200
