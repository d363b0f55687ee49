"""The runner's way to the gateway: what is passed on, and when the mailbox takes its place."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from orchestration_service.scripted.endpoint import serve
from runner_image.gateway import Gateway
from runner_image.relay import DirectAnswer
from workflow_schemas.mailbox import CALL_HEADER
from workflow_schemas.model_stream import SseParser, encode_event, message_to_sse

pytestmark = pytest.mark.anyio

MESSAGE: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Hello."}]}
MESSAGE |= {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
PING = encode_event({"type": "ping"})
HEADERS = {CALL_HEADER: "c"}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}


def stream(*pieces: bytes) -> Response:
    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return StreamingResponse(sent(), headers=HEADERS, media_type="text/event-stream")


@asynccontextmanager
async def gateway(answer: Callable[[], Response], *, there: int = 204) -> AsyncIterator[tuple[Gateway, list[str], list[Request]]]:
    """A gateway that answers so, named to the runner, what the user was told and what was asked."""
    told: list[str] = []
    requests: list[Request] = []

    async def tell(text: str) -> None:
        told.append(text)

    async def call(request: Request) -> Response:
        requests.append(request)
        return answer()

    async def look(request: Request) -> Response:
        requests.append(request)
        return Response(status_code=there)

    app = Starlette(routes=[Route("/g/", look), Route("/g/v1/messages", call, methods=["POST"])])
    way = Gateway(tell)
    async with serve(app) as served:
        await way.take({"url": f"{served.base_url}/g", "token": "t"})
        try:
            yield way, told, requests
        finally:
            await way.close()
    assert await way.ask({}, b"{}") is None


async def events_of(answer: DirectAnswer | None) -> list[dict[str, Any]]:
    assert answer is not None
    assert answer.events is not None
    return SseParser().feed(b"".join([piece async for piece in answer.events]))


async def test_a_stream_is_passed_on_without_the_pings() -> None:
    async with gateway(lambda: stream(PING, *message_to_sse(MESSAGE))) as (way, told, requests):
        events = await events_of(await way.ask({"anthropic-beta": "b"}, b'{"stream":true}'))
    assert [event["type"] for event in events[:2]] == ["message_start", "content_block_start"]
    assert (events[-1]["type"], told) == ("message_stop", [])
    assert {request.headers["authorization"] for request in requests} == {"Bearer t"}
    assert requests[1].headers["anthropic-beta"] == "b"


async def test_a_stream_that_ends_too_early_ends_with_an_error() -> None:
    first, *_ = message_to_sse(MESSAGE)
    async with gateway(lambda: stream(first)) as (way, _, _):
        events = await events_of(await way.ask({}, b"{}"))
    assert [event["type"] for event in events] == ["message_start", "error"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda: JSONResponse(OVERLOADED, 529, {**HEADERS, "retry-after": "3"}),
        lambda: stream(PING, encode_event({**OVERLOADED, "status": 529, "retry_after": 3})),
    ],
    ids=["as a status", "after pings"],
)
async def test_an_error_keeps_its_status(answer: Callable[[], Response]) -> None:
    async with gateway(answer) as (way, told, _):
        got = await way.ask({}, b"{}")
    assert got is not None
    assert (got.status, got.body, got.retry_after, got.events, told) == (529, OVERLOADED, 3.0, None, [])


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (lambda: Response(status_code=503), True),
        (lambda: Response(status_code=500), True),
        (lambda: stream(), True),
        (lambda: stream(b"nonsense\n\n"), True),
        (lambda: JSONResponse(OVERLOADED, 401), False),
        (lambda: Response("<html>", 200), False),
        (lambda: Response(status_code=302, headers={"location": "/elsewhere"}), False),
    ],
    ids=["of another replica", "of one that ends", "nothing", "nonsense", "token refused", "a page", "a redirect"],
)
async def test_what_is_no_answer_goes_through_the_mailbox(answer: Callable[[], Response], again: bool) -> None:
    """And so do later calls where nothing better can be expected; the user is told."""
    async with gateway(answer) as (way, told, requests):
        assert await way.ask({}, b"{}") is None
        assert await way.ask({}, b"{}") is None
    assert (len(requests), len(told)) == ((3, 0) if again else (2, 1))


@pytest.mark.parametrize("there", [401, 404, 302, 200], ids=str)
async def test_a_gateway_that_is_none_is_not_asked(there: int) -> None:
    async with gateway(lambda: stream(), there=there) as (way, told, requests):
        assert await way.ask({}, b"{}") is None
    assert len(requests) == 1
    assert "through the mailbox" in told[0]


async def test_a_gateway_that_is_not_there_and_one_that_is_named_later() -> None:
    async with gateway(lambda: stream(*message_to_sse(MESSAGE))) as (way, told, requests):
        assert await way.ask({}, b"{}") is not None
        url = str(requests[0].url).rstrip("/")
        await way.take({"url": "https://127.0.0.1:9", "token": "t"})
        assert await way.ask({}, b"{}") is None
        await way.take({"url": url, "token": "another"})
        assert len(await events_of(await way.ask({}, b"{}"))) > 3
        await way.take({"url": ""})
        assert await way.ask({}, b"{}") is None
    assert len(told) == 1
    assert json.dumps(told).count("another") == 0
    assert requests[-1].headers["authorization"] == "Bearer another"
