"""The broker against upstreams that work, refuse, break and fall silent, over real sockets."""

import json
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import anyio
import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from orchestration_service.brokers.call import (
    ModelAnswer,
    ModelCall,
    ModelDelta,
    Restarted,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolStarted,
)
from orchestration_service.brokers.errors import BrokerClosed
from orchestration_service.brokers.model import ModelBroker
from orchestration_service.brokers.route import ModelRoute
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from workflow_schemas.model_stream import encode_event, message_to_sse
from workflow_schemas.usage import Usage

pytestmark = pytest.mark.anyio

KEY = "sk-secret-0123456789"
BODY = {"model": "asked", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "stream": True}
STEP: dict[str, Any] = {"text": "Hello from the model.", "usage": {"input_tokens": 30, "output_tokens": 7}}


def scripted(*steps: dict[str, Any]) -> ScriptedModel:
    """Give a scripted model that knows the key."""
    return ScriptedModel(Script.model_validate({"name": "test", "steps": list(steps), "delta_chars": 5}), expected_key=SecretStr(KEY))


@asynccontextmanager
async def asking(app: ASGIApp, **fields: Any) -> AsyncIterator[tuple[ModelBroker, ModelRoute]]:
    """Serve an upstream and give a broker and a route to it, with short waits."""
    settings = {"api_key": SecretStr(KEY), "model": "deployed", "idle_timeout_seconds": 0.3, "max_attempts": 3, **fields}
    async with serve(app) as endpoint, ModelBroker(first_wait_seconds=0.01) as broker:
        yield broker, ModelRoute(base_url=endpoint.base_url, **settings)


class Passing:
    """Passes events on, from the first of this kind on."""

    def __init__(self, out_from: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._out_from = out_from

    @property
    def is_out(self) -> bool:
        return any(event["type"] == self._out_from for event in self.events)

    def take(self, event: dict[str, Any]) -> None:
        if event["type"] == "message_start":
            assert not self.is_out, "what is out cannot be begun anew"
            self.events.clear()
        self.events.append(event)


async def ask(app: ASGIApp, deltas: list[ModelDelta] | None = None, *, call: ModelCall | None = None, **fields: Any) -> ModelAnswer:
    """Ask an upstream once."""
    async with asking(app, **fields) as (broker, route):
        listener = None if deltas is None else deltas.append
        return await broker.complete(route, call or ModelCall(json.dumps(BODY).encode(), deadline_seconds=10), listener)


def text_of(answer: ModelAnswer) -> str:
    """Give the text of an answer's first block."""
    assert answer.message is not None, answer
    return str(answer.message["content"][0]["text"])


class Raw:
    """An ASGI app that gives the same response to everybody, built from the request."""

    def __init__(self, *responses: Response) -> None:
        self.responses = list(responses)
        self.asked: list[Request] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Give the next response; the last one stays."""
        self.asked.append(Request(scope, receive))
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        await response(scope, receive, send)


def sse(events: Sequence[bytes]) -> Response:
    """Give a stream with these events."""
    return Response(b"".join(events), media_type="text/event-stream")


async def test_an_answer_has_message_usage_and_figures() -> None:
    upstream = scripted(STEP)
    answer = await ask(upstream)
    assert (answer.status, answer.reason, answer.attempts, answer.ok) == (200, "answered", 1, True)
    assert text_of(answer) == "Hello from the model."
    assert answer.usage == Usage(model_calls=1, input_tokens=30, output_tokens=7)
    assert answer.first_byte_seconds is not None
    assert 0 < answer.first_byte_seconds <= answer.duration_seconds
    assert upstream.received[0].body["model"] == "deployed"


async def test_deltas_come_while_the_model_streams() -> None:
    deltas: list[ModelDelta] = []
    step = {"thinking": "hmm", "text": "Hello.", "tool_use": [{"name": "Read", "input": {"a": 1}}]}
    await ask(scripted(step), deltas)
    assert deltas == [
        ThinkingDelta("hmm"),
        TextDelta("Hello"),
        TextDelta("."),
        ToolStarted(2, "Read"),
        ToolInputDelta(2, '{"a":'),
        ToolInputDelta(2, " 1}"),
    ]


async def test_a_request_for_one_piece_is_streamed_upstream_all_the_same() -> None:
    upstream = scripted(STEP)
    call = ModelCall(json.dumps({**BODY, "stream": False}).encode())
    assert (await ask(upstream, call=call)).ok
    assert upstream.received[0].body["stream"] is True


async def test_tokens_are_counted_without_counting_as_a_model_call() -> None:
    call = ModelCall(json.dumps(BODY).encode(), path="/v1/messages/count_tokens?beta=true")
    answer = await ask(scripted(STEP), call=call)
    assert answer.message is not None
    assert answer.message["input_tokens"] > 0
    assert answer.usage == Usage()


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413])
async def test_a_refusal_is_final(status: int) -> None:
    answer = await ask(scripted({"http": {"status": status}}))
    assert (answer.status, answer.attempts, answer.message) == (status, 1, None)
    assert answer.error is not None
    assert answer.error["type"] == "error"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param({"http": {"status": 429, "headers": {"retry-after": "0"}}}, "rate_limited", id="429"),
        pytest.param({"http": {"status": 500}}, "server_error", id="500"),
        pytest.param({"http": {"status": 503, "body": "<h1>down</h1>"}}, "overloaded", id="503"),
        pytest.param({"http": {"status": 529}}, "overloaded", id="529"),
        pytest.param({"malformed": "cut"}, "cut", id="connection_lost"),
        pytest.param({"malformed": "unfinished"}, "cut", id="stream_ends_early"),
        pytest.param({"malformed": "garbage"}, "malformed", id="garbage"),
        pytest.param({"malformed": "empty"}, "empty", id="empty"),
        pytest.param({"malformed": "error_event"}, "overloaded", id="error_event"),
        pytest.param({"stall": "before_first_byte"}, "no_answer", id="silence"),
        pytest.param({"stall": "mid_stream"}, "stalled", id="stalled"),
    ],
)
async def test_what_passes_is_asked_again(fault: dict[str, Any], reason: str) -> None:
    deltas: list[ModelDelta] = []
    answer = await ask(scripted({**STEP, **fault, "fault_times": 1}), deltas)
    assert (answer.ok, answer.attempts) == (True, 2)
    assert [(delta.reason, delta.attempt) for delta in deltas if isinstance(delta, Restarted)] == [(reason, 2)]
    restart = next(number for number, delta in enumerate(deltas) if isinstance(delta, Restarted))
    heard = "".join(delta.text for delta in deltas[restart:] if isinstance(delta, TextDelta))
    assert heard == text_of(answer)


@pytest.mark.parametrize(
    ("fault", "status", "reason", "attempts"),
    [
        pytest.param({"http": {"status": 529}}, 529, "overloaded", 3, id="529"),
        pytest.param({"malformed": "html"}, 502, "not_a_model", 1, id="html"),
        pytest.param({"malformed": "garbage"}, 502, "malformed", 3, id="garbage"),
        pytest.param({"malformed": "empty"}, 502, "empty", 3, id="empty"),
        pytest.param({"malformed": "cut"}, 502, "cut", 3, id="cut"),
        pytest.param({"stall": "before_first_byte"}, 504, "no_answer", 3, id="silence"),
        pytest.param({"stall": "mid_stream"}, 504, "stalled", 3, id="stalled"),
    ],
)
async def test_what_does_not_pass_ends_as_an_error_of_the_api(fault: dict[str, Any], status: int, reason: str, attempts: int) -> None:
    answer = await ask(scripted(fault))
    assert (answer.status, answer.reason, answer.attempts, answer.message) == (status, reason, attempts, None)
    assert answer.error is not None
    assert set(answer.error["error"]) == {"type", "message"}


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    async with ModelBroker(first_wait_seconds=0.01) as broker:
        route = ModelRoute(base_url=address, api_key=SecretStr(KEY), model="m", max_attempts=2)
        answer = await broker.complete(route, ModelCall(json.dumps(BODY).encode()))
    assert (answer.status, answer.reason, answer.attempts) == (502, "unreachable", 2)
    assert address not in json.dumps(answer.error)


@pytest.mark.parametrize("wait", ["1", "Fri, 31 Dec 2100 00:00:00 GMT"], ids=["seconds", "far_date"])
async def test_retry_after_is_honoured_within_the_deadline(wait: str) -> None:
    """A wait that fits is waited for; one that does not ends the call at once and is handed on."""
    upstream = scripted({**STEP, "http": {"status": 429, "headers": {"retry-after": wait}}, "fault_times": 1})
    started = monotonic()
    answer = await ask(upstream, call=ModelCall(json.dumps(BODY).encode(), deadline_seconds=5))
    if wait == "1":
        assert answer.ok
        assert monotonic() - started >= 1
    else:
        assert (answer.status, answer.attempts) == (429, 1)
        assert answer.retry_after_seconds is not None
        assert answer.retry_after_seconds > 1_000_000
        assert monotonic() - started < 30


async def test_who_has_others_to_ask_does_not_wait_long() -> None:
    upstream = scripted({**STEP, "http": {"status": 429, "headers": {"retry-after": "5"}}})
    answer = await ask(upstream, call=ModelCall(json.dumps(BODY).encode(), longest_wait_seconds=2))
    assert (answer.status, answer.reason, answer.attempts, answer.retry_after_seconds) == (429, "rate_limited", 1, 5)


@pytest.mark.parametrize("stall", ["before_first_byte", "mid_stream"])
async def test_the_deadline_ends_every_wait(stall: str) -> None:
    call = ModelCall(json.dumps(BODY).encode(), deadline_seconds=0.4)
    started = monotonic()
    answer = await ask(scripted({**STEP, "stall": stall}), call=call, idle_timeout_seconds=60)
    assert (answer.status, answer.reason, answer.attempts) == (504, "deadline", 1)
    assert monotonic() - started < 60 / 2
    assert answer.lost_usage.input_tokens == (30 if stall == "mid_stream" else 0)


async def test_pings_do_not_keep_a_dead_answer_alive() -> None:
    """An upstream that only pings is never silent; the deadline ends it."""

    async def ping(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            await send({"type": "http.response.body", "body": encode_event({"type": "ping"}), "more_body": True})
            await anyio.sleep(0.05)

    answer = await ask(ping, call=ModelCall(json.dumps(BODY).encode(), deadline_seconds=0.5))
    assert (answer.reason, answer.attempts) == ("deadline", 1)


async def test_streams_that_broke_are_accounted_for() -> None:
    answer = await ask(scripted({**STEP, "malformed": "cut", "fault_times": 2}))
    assert answer.usage.input_tokens == 30
    assert answer.lost_usage == Usage(model_calls=2, input_tokens=60, output_tokens=2)


async def test_a_gateway_that_does_not_stream_is_understood() -> None:
    message = {"type": "message", "content": [{"type": "text", "text": "whole"}], "usage": {"output_tokens": 2}}
    answer = await ask(Raw(JSONResponse(message)))
    assert text_of(answer) == "whole"


async def test_a_stream_that_stays_open_after_its_message_does_not_hold_the_answer() -> None:
    async def open_ended(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        message = {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "x"}], "usage": {}}
        await send({"type": "http.response.body", "body": b"".join(message_to_sse(message)), "more_body": True})
        await anyio.sleep(60)

    started = monotonic()
    answer = await ask(open_ended, idle_timeout_seconds=30)
    assert text_of(answer) == "x"
    assert monotonic() - started < 30 / 2


async def test_redirects_are_not_followed_with_the_key() -> None:
    upstream = Raw(Response(status_code=307, headers={"location": "/v1/messages"}))
    answer = await ask(upstream)
    assert (answer.status, answer.reason) == (502, "not_a_model")
    assert len(upstream.asked) == 1


async def test_nothing_is_sent_for_a_request_the_gate_refuses() -> None:
    upstream = scripted(STEP)
    body = {**BODY, "mcp_servers": [{"type": "url", "url": "https://elsewhere.example"}]}
    answer = await ask(upstream, call=ModelCall(json.dumps(body).encode()))
    assert (answer.status, answer.reason, answer.attempts) == (403, "refused_by_gate", 0)
    assert upstream.received == ()


@pytest.mark.parametrize("size", [100, 3_000_000], ids=["small", "large"])
async def test_requests_of_any_size_pass(size: int) -> None:
    body = {**BODY, "messages": [{"role": "user", "content": "a" * size}]}
    assert (await ask(scripted(STEP), call=ModelCall(json.dumps(body).encode()))).ok


@pytest.mark.parametrize("place", ["error", "request_id", "stream_error"])
async def test_an_upstream_that_echoes_the_key_does_not_leak_it(
    place: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "httpcore")  # at DEBUG it prints the headers it received, and knows no secrets
    caplog.set_level(logging.DEBUG)  # last, since it is the handler's level too
    error = {"type": "error", "error": {"type": "authentication_error", "message": f"bad key {KEY}"}}
    upstream = {
        "error": Raw(JSONResponse(error, 401)),
        "request_id": Raw(JSONResponse({}, 401, {"request-id": f"req-{KEY}"})),
        "stream_error": Raw(sse([encode_event(error)])),
    }[place]
    deltas: list[ModelDelta] = []
    answer = await ask(upstream, deltas)
    assert answer.status == 401
    assert upstream.asked[0].headers["x-api-key"] == KEY
    said = capfd.readouterr()
    assert KEY not in f"{answer!r} {deltas!r} {caplog.text} {said.out} {said.err}"


async def test_a_bearer_token_and_headers_of_a_gateway_are_sent() -> None:
    upstream = Raw(JSONResponse({}, 404))
    await ask(upstream, api_key=None, auth_token=SecretStr("t-1"), headers={"X-Team": "blue"})
    sent = upstream.asked[0].headers
    assert (sent["authorization"], sent["x-team"], sent.get("x-api-key")) == ("Bearer t-1", "blue", None)


async def test_calls_share_connections() -> None:
    clients: set[tuple[str, int]] = set()
    model = scripted({**STEP})

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        clients.add(scope["client"])
        await model(scope, receive, send)

    async with asking(noting) as (broker, route):
        for _ in range(5):
            assert (await broker.complete(route, ModelCall(json.dumps(BODY).encode()))).ok
    assert len(clients) == 1


async def test_calls_run_beside_each_other() -> None:
    async with asking(scripted({**STEP, "delay_seconds": 1}), idle_timeout_seconds=30) as (broker, route):
        answers: list[ModelAnswer] = []

        async def one() -> None:
            answers.append(await broker.complete(route, ModelCall(json.dumps(BODY).encode())))

        started = monotonic()
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(one)
        assert all(answer.ok for answer in answers)
        assert monotonic() - started < 20 / 2


async def test_cancelling_a_call_ends_it_at_once() -> None:
    async with asking(scripted({**STEP, "stall": "mid_stream"}), idle_timeout_seconds=60) as (broker, route):
        started = monotonic()
        with anyio.move_on_after(0.2) as scope:
            await broker.complete(route, ModelCall(json.dumps(BODY).encode()))
        assert scope.cancelled_caught
        assert monotonic() - started < 60 / 2


async def test_a_broker_is_used_inside_its_block() -> None:
    broker = ModelBroker()
    with pytest.raises(BrokerClosed):
        await broker.complete(ModelRoute(model="m"), ModelCall(b"{}"))
    async with broker:
        pass
    with pytest.raises(BrokerClosed):
        await broker.complete(ModelRoute(model="m"), ModelCall(b"{}"))


@pytest.mark.parametrize(("out_from", "attempts", "reason"), [("message_stop", 2, "answered"), ("content_block_delta", 1, "cut")])
async def test_a_stream_that_breaks_is_asked_for_again_unless_something_of_it_is_out(out_from: str, attempts: int, reason: str) -> None:
    passing = Passing(out_from)
    model = scripted({**STEP, "malformed": "cut", "fault_times": 1})
    async with asking(model) as (broker, route):
        answer = await broker.complete(route, ModelCall(json.dumps(BODY).encode(), deadline_seconds=10), on_event=passing)
    assert (answer.attempts, answer.reason, len(model.received)) == (attempts, reason, attempts)
    assert answer.lost_usage.prompt_tokens == 30
    if answer.ok:
        assert passing.events[-1]["type"] == "message_stop"
        assert "".join(event["delta"].get("text", "") for event in passing.events if "delta" in event) == STEP["text"]
