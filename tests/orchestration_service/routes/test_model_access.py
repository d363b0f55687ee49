"""The gateway over real sockets: who is let in, what is passed on and when, and what is counted when somebody leaves."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from pydantic import SecretStr

from orchestration_service.answer_stream import AnswerStream
from orchestration_service.brokers.model import ModelBroker
from orchestration_service.brokers.route import ModelRoute
from orchestration_service.errors import StoreFull
from orchestration_service.fallbacks import Turnout
from orchestration_service.model_access import NOT_ALLOWED, ModelAccess
from orchestration_service.model_calls import ModelCalls
from orchestration_service.model_routes import RoutedModel, TurnRoutes
from orchestration_service.prices import shipped_prices
from orchestration_service.routes.model_access import gateway_app
from orchestration_service.run_tokens import RunTokens
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from orchestration_service.spending import Spending
from tests.orchestration_service.turns import asked, plan
from workflow_schemas.mailbox import CALL_HEADER
from workflow_schemas.model_stream import MessageAssembler, SseParser

pytestmark = pytest.mark.anyio

BODY = {"model": "made-up", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "stream": True}
LATER = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "on"}]
STEP: dict[str, Any] = {"text": "Hello from the model. " * 20, "usage": {"input_tokens": 30, "output_tokens": 7}}
URL, KEY, INSTANCE = "http://127.0.0.1:1", b"a key of sixteen", "i"


@dataclass
class Ledger:
    """The one thing of a course that the gateway writes to."""

    noted: list[dict[str, Any]] = field(default_factory=list)
    fault: Exception | None = None

    async def record_call(self, data: dict[str, Any]) -> None:
        if self.fault:
            raise self.fault
        self.noted.append(data)


@dataclass
class Door:
    """A gateway with a turn behind it."""

    client: httpx.AsyncClient
    access: ModelAccess
    course: Any
    calls: ModelCalls
    model: ScriptedModel
    ledger: Ledger
    token: str
    run: AsyncExitStack
    events: list[dict[str, Any]]

    @property
    def out(self) -> bool:
        """Whether something of an answer was given out."""
        return any(stream.is_out for stream in self.access._runs["run-12345678"]._open.values())

    async def ask(self, path: str = "v1/messages", token: str | None = None, **changes: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.token if token is None else token}"}
        return await self.client.post(f"/{path}", headers=headers, json={**BODY, **changes})


@asynccontextmanager
async def door(*steps: dict[str, Any], ping_seconds: float = 5, max_total_tokens: int | None = None, **script: Any) -> AsyncIterator[Door]:
    model = ScriptedModel(Script.model_validate({"name": "t", "steps": list(steps), **script}), expected_key=SecretStr("k"))
    access = ModelAccess(instance_id=INSTANCE, url=URL, key=KEY)
    planned, ledger, events = plan(asked({"model_access": "direct"})), Ledger(), list[dict[str, Any]]()
    course: Any = SimpleNamespace(
        planned=planned, ledger=ledger, late=False, run_id="run-12345678", remarks=(), past=SimpleNamespace(opened=None), seconds_before=0.0
    )

    async def spent() -> None:
        events.append({"type": "spent"})

    async with serve(model) as upstream, ModelBroker(first_wait_seconds=0.01) as broker:
        route = ModelRoute(base_url=upstream.base_url, api_key=SecretStr("k"), model="deployed", idle_timeout_seconds=20, max_attempts=3)
        routed = RoutedModel(role="main_model", endpoint="e", route=route)
        calls = ModelCalls(
            broker=broker,
            models=Turnout(TurnRoutes(main=routed), "made-up"),
            spending=Spending([routed], shipped_prices()),
            ends_at=time.monotonic() + 60,
            max_total_tokens=max_total_tokens,
            on_call=lambda event, _: events.append(event),
            on_text=lambda _: None,
            on_spent=spent,
        )
        async with serve(gateway_app(access, ping_seconds=ping_seconds)) as gateway:
            async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as client, AsyncExitStack() as run:
                grant = await run.enter_async_context(access.granted(course, calls))
                assert grant is not None
                assert grant.url == f"{URL}/model-access"
                yield Door(client, access, course, calls, model, ledger, grant.token, run, events)


def message_of(content: bytes) -> dict[str, Any]:
    assembler = MessageAssembler()
    for event in SseParser().feed(content):
        assembler.feed(event)
    return assembler.message()


async def test_an_answer_is_passed_on_counted_noted_and_logged() -> None:
    async with door(STEP, {"text": "In one piece.", "usage": {"input_tokens": 1, "output_tokens": 2}}) as opened:
        streamed = await opened.ask()
        whole = await opened.ask(stream=False, messages=LATER)
        counted = await opened.ask("v1/messages/count_tokens")
    message = message_of(streamed.content)
    assert (message["content"][0]["text"], whole.json()["content"][0]["text"]) == (STEP["text"], "In one piece.")
    assert counted.json()["input_tokens"] > 0
    assert all(CALL_HEADER in answer.headers for answer in (streamed, whole, counted))
    assert [request.body.get("model") for request in opened.model.received] == ["deployed"] * 3, "the model of the body counts for nothing"
    usage = opened.calls.spending.usage
    assert (usage.model_calls, usage.total_tokens) == (2, 40)
    assert [note["charges"][0]["usage"]["output_tokens"] for note in opened.ledger.noted[:2]] == [7, 2]
    logged = [(event["type"], event["status"], event["output_tokens"]) for event in opened.events[:2]]
    assert logged == [("model_call", 200, 7), ("model_call", 200, 2)]
    assert opened.calls.ways == Counter(direct=3)


async def test_who_is_let_in() -> None:
    """A token of this run, whole, in its header, once; everything else is 401 in the API's words, but for runs of other replicas."""
    async with door(STEP) as opened:
        tokens = RunTokens(KEY, INSTANCE)
        refused = {
            "nothing like a token": "x",
            "another key": RunTokens(b"k" * 16, INSTANCE).issue("run-12345678", 60).text,
            "another instance": RunTokens(KEY, "j").issue("run-12345678", 60).text,
            "another token of the run": tokens.issue("run-12345678", 60).text,
            "too old": tokens.issue("run-12345678", -5).text,
            "for longer": opened.token.replace(opened.token.split(".")[2], "99999999999"),
            "another run's name": opened.token.replace("run-12345678", "run-87654321"),
            "a part": opened.token[:-1],
        }
        for name, token in refused.items():
            answer = await opened.ask(token=token)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error"), name
            assert CALL_HEADER not in answer.headers
        by_key = await opened.client.post("/v1/messages", headers={"x-api-key": opened.token}, json=BODY)
        twice = [("authorization", f"Bearer {opened.token}")] * 2
        doubled = await opened.client.post("/v1/messages", headers=twice, json=BODY)
        elsewhere = await opened.ask(token=tokens.issue("run-of-another-replica", 60).text)
        assert (by_key.status_code, doubled.status_code) == (401, 401)
        assert (elsewhere.status_code, elsewhere.headers["retry-after"]) == (503, "1")
        for method, path, status in (("GET", "/v1/messages", 405), ("POST", "/v1/files", 404), ("POST", "/", 405)):
            answer = await opened.client.request(method, path, headers={"authorization": f"Bearer {opened.token}"})
            assert (answer.status_code, answer.json()["type"]) == (status, "error")
    assert opened.model.received == ()


async def begun(opened: Door) -> None:
    """Wait until the gateway has sent something of an answer."""
    with anyio.fail_after(20):
        while not opened.out:
            await anyio.sleep(0.01)


async def test_a_run_that_ends_takes_its_token_along_and_counts_what_is_open() -> None:
    async with door({**STEP, "stall": "mid_stream"}, delta_chars=10) as opened:
        asking = asyncio.create_task(opened.ask())
        await begun(opened)
        await opened.run.aclose()
        events = SseParser().feed((await asking).content)
        late = await opened.ask()
    assert (events[0]["type"], events[-1]["type"], events[-1]["status"]) == ("message_start", "error", 503)
    assert (late.status_code, late.json()["error"]["type"]) == (401, "authentication_error")
    assert opened.calls.spending.usage.prompt_tokens == 30
    assert opened.ledger.noted[0]["charges"][0]["lost"]["input_tokens"] == 30
    assert len(opened.course.called_directly) == 1


async def test_a_call_that_arrives_while_its_run_ends_is_refused() -> None:
    sent, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"stream": true,'
        sent.set()
        await go_on.wait()
        yield b'"model": "m", "messages": []}'

    async with door(STEP) as opened:
        headers = {"authorization": f"Bearer {opened.token}"}
        asking = asyncio.create_task(opened.client.post("/v1/messages", headers=headers, content=slowly()))
        await sent.wait()
        await anyio.sleep(0.1)
        await opened.run.aclose()
        go_on.set()
        assert (await asking).status_code == 401
    assert opened.model.received == ()


async def test_a_caller_that_leaves_is_not_worked_for_and_pays() -> None:
    async with door({**STEP, "stall": "mid_stream"}, delta_chars=10) as opened:
        asking = asyncio.create_task(opened.ask())
        await begun(opened)
        asking.cancel()
        with anyio.fail_after(20):
            while not opened.ledger.noted:
                await anyio.sleep(0.01)
    assert (opened.calls.spending.usage.prompt_tokens, opened.calls.spending.usage.model_calls) == (30, 0)
    assert [event["status"] for event in opened.events] == [499]
    assert opened.calls.failure == ""


async def test_the_budget_refuses_as_through_the_mailbox() -> None:
    async with door(STEP, max_total_tokens=30, when_over="loop") as opened:
        first, second = await opened.ask(), await opened.ask()
    assert message_of(first.content)["usage"]["output_tokens"] == 7
    assert (second.status_code, "token budget" in second.json()["error"]["message"]) == (400, True)
    assert [event["type"] for event in opened.events] == ["model_call", "spent"]


@pytest.mark.parametrize(
    ("fault", "ping_seconds", "status"),
    [({"http": {"status": 400}}, 5, 400), ({"http": {"status": 400}, "delay_seconds": 0.5}, 0.1, 200)],
    ids=["at once", "after pings"],
)
async def test_a_failure_keeps_its_status(fault: dict[str, Any], ping_seconds: float, status: int) -> None:
    async with door(fault, ping_seconds=ping_seconds) as opened:
        answer = await opened.ask()
    told = answer.json() if status == 400 else SseParser().feed(answer.content)[-1]
    assert (answer.status_code, told["type"], told["error"]["type"]) == (status, "error", "invalid_request_error")
    assert told.get("status", answer.status_code) == 400


async def test_what_breaks_before_anything_is_out_is_asked_again_unseen() -> None:
    """With pings in between, because the model takes its time."""
    async with door({**STEP, "delay_seconds": 0.3, "malformed": "empty", "fault_times": 2}, ping_seconds=0.1) as opened:
        answer = await opened.ask()
    kinds = [event["type"] for event in SseParser().feed(answer.content)]
    assert (kinds[0], kinds.count("message_start"), kinds[-1]) == ("ping", 1, "message_stop")
    assert message_of(answer.content)["content"][0]["text"] == STEP["text"]
    assert len(opened.model.received) == 3


async def test_an_answer_that_cannot_be_noted_is_not_ended() -> None:
    """Whoever owns the turn next would not know of it, so the caller must not go on from it."""
    async with door(STEP) as opened:
        opened.ledger.fault = StoreFull("no space")
        answer = await opened.ask()
    last = SseParser().feed(answer.content)[-1]
    assert (last["type"], last["status"]) == ("error", 503)


async def test_where_it_is_not_offered_the_mailbox_is_used_and_that_is_said() -> None:
    async with door(STEP) as opened:
        async with ModelAccess().granted(opened.course, opened.calls) as grant:
            assert grant is None
        assert opened.course.remarks == (NOT_ALLOWED,)
        opened.course.late = True
        async with opened.access.granted(opened.course, opened.calls) as grant:
            assert grant is None, "a turn that was given up calls nobody"


async def test_a_caller_that_takes_nothing_counts_as_gone() -> None:
    stream = AnswerStream(most_held_bytes=1000)
    stream.take({"type": "message_start", "message": {"usage": {"input_tokens": 5}}})
    for _ in range(100):
        stream.take({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 100}})
    assert (stream.is_left, stream.used.input_tokens) == (True, 5)
    assert len(await stream.piece()) < 1300
