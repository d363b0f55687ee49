"""The scripted model over real sockets."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import httpx
import pytest
from pydantic import SecretStr

from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import scripted_endpoint, serve
from orchestration_service.scripted.script import Script
from workflow_schemas.model_stream import MessageAssembler, SseParser

pytestmark = pytest.mark.anyio

KEY = "sk-test-12345678"
STEPS: list[dict[str, Any]] = [
    {"text": "First, a look.", "thinking": "hm", "tool_use": [{"name": "Read", "input": {"file_path": "{{workspace}}/a"}}]},
    {"text": "Done.", "usage": {"input_tokens": 5}},
]


def model(**fields: Any) -> ScriptedModel:
    """Give a scripted model of two steps."""
    return ScriptedModel(Script.model_validate({"name": "test", "steps": STEPS, **fields}))


def body(answers: int = 0, **fields: Any) -> dict[str, Any]:
    """Give a request whose conversation holds so many answers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    messages += [{"role": "assistant", "content": "a"}, {"role": "user", "content": [{"type": "tool_result"}]}] * answers
    return {"model": "m", "max_tokens": 10, "messages": messages, **fields}


@asynccontextmanager
async def client_of(scripted: ScriptedModel) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a model and give a client for it."""
    async with scripted_endpoint(scripted) as endpoint, httpx.AsyncClient(base_url=endpoint.base_url) as client:
        yield client


async def test_stream_and_one_piece_give_the_same_message() -> None:
    async with client_of(model()) as client:
        whole = (await client.post("/v1/messages", json=body())).json()
        streamed = await client.post("/v1/messages?beta=true", json=body(stream=True))
    assembler = MessageAssembler()
    for event in SseParser().feed(streamed.content):
        assembler.feed(event)
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
    message = assembler.message()
    assert {**message, "usage": None} == {**whole, "usage": None}
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["content"][2]["input"] == {"file_path": "/workspace/a"}
    assert message["stop_reason"] == "tool_use"


async def test_a_repeated_request_gets_the_same_answer() -> None:
    """Retries and take-overs send a request again; they must not move the story on."""
    async with client_of(model()) as client:
        answers = [(await client.post("/v1/messages", json=body(answers))).json() for answers in (0, 0, 1, 0)]
    assert answers[0] == answers[1] == answers[3]
    assert answers[2]["content"] == [{"type": "text", "text": "Done."}]
    assert answers[2]["usage"]["input_tokens"] == 5


async def test_in_order_counts_each_conversation_apart() -> None:
    async with client_of(model(stepping="in_order")) as client:
        headers = [{"x-claude-code-session-id": name} for name in "aabb"]
        texts = [(await client.post("/v1/messages", json=body(), headers=header)).json()["stop_reason"] for header in headers]
    assert texts == ["tool_use", "end_turn", "tool_use", "end_turn"]


async def test_many_conversations_at_once() -> None:
    scripted = model(steps=[{"text": "x", "delay_seconds": 1}])
    async with client_of(scripted) as client, anyio.create_task_group() as tasks:
        started = monotonic()
        for _ in range(30):
            tasks.start_soon(lambda: client.post("/v1/messages", json=body(stream=True)))
    assert len(scripted.received) == 30
    assert monotonic() - started < 30 / 2


async def test_a_script_that_is_over_refuses() -> None:
    async with client_of(model()) as client:
        answer = await client.post("/v1/messages", json=body(2))
    assert answer.status_code == 400
    assert "2 steps" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        pytest.param("/v1/models", b"{}", 404, id="path"),
        pytest.param("/v1/messages", b"nonsense", 400, id="no_json"),
        pytest.param("/v1/messages", b"[" * 100_000, 400, id="deep"),
        pytest.param("/v1/messages", json.dumps({**body(), "model": ""}).encode(), 400, id="no_model"),
        pytest.param("/v1/messages", json.dumps({**body(), "messages": []}).encode(), 400, id="no_messages"),
        pytest.param("/v1/messages", json.dumps({**body(), "max_tokens": 0}).encode(), 400, id="no_max_tokens"),
        pytest.param("/some/prefix/v1/messages/count_tokens", json.dumps(body()).encode(), 200, id="count"),
    ],
)
async def test_requests_are_judged_as_the_real_endpoint_does(path: str, content: bytes, status: int) -> None:
    async with client_of(model()) as client:
        answer = await client.post(path, content=content)
    assert answer.status_code == status
    assert status == 200 or answer.json()["type"] == "error"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"x-api-key": KEY}, 200, id="key"),
        pytest.param({"authorization": f"Bearer {KEY}"}, 200, id="bearer"),
        pytest.param({"x-api-key": "wrong"}, 401, id="wrong"),
        pytest.param({"x-api-key": b"\xff\xfe"}, 401, id="no_ascii"),
        pytest.param({}, 401, id="none"),
    ],
)
async def test_a_key_is_checked_if_one_is_expected_and_never_kept(headers: dict[str, Any], status: int) -> None:
    scripted = ScriptedModel(model().script, expected_key=SecretStr(KEY))
    async with client_of(scripted) as client:
        assert (await client.post("/v1/messages", json=body(), headers=headers)).status_code == status
    assert KEY not in repr(scripted.received)


async def test_received_requests_are_kept_up_to_a_bound() -> None:
    scripted = ScriptedModel(model().script, keep_requests=2)
    async with client_of(scripted) as client:
        for answers in (0, 1, 2):
            await client.post("/v1/messages?beta=true", json=body(answers))
    assert [request.step for request in scripted.received] == ["steps[1]", None]
    assert scripted.received[0].path == "/v1/messages?beta=true"


async def test_faults_are_played_as_often_as_told() -> None:
    fault = {"http": {"status": 429, "headers": {"retry-after": "3"}}, "text": "fine", "fault_times": 2}
    async with client_of(model(steps=[fault])) as client:
        answers = [await client.post("/v1/messages", json=body()) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "3"
    assert answers[0].json()["error"]["type"] == "rate_limit_error"


async def test_a_cut_stream_ends_without_its_end() -> None:
    async with client_of(model(steps=[{"text": "abc", "malformed": "cut"}])) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/messages", json=body(stream=True))


async def test_answers_are_not_held_back_by_the_network() -> None:
    """Without TCP_NODELAY each streamed answer takes 40 ms; the quickest of some tells, however busy the machine is."""
    times: list[float] = []
    async with client_of(model()) as client:
        for _ in range(10):
            started = monotonic()
            await client.post("/v1/messages", json=body(stream=True))
            times.append(monotonic() - started)
    assert min(times) < 0.03


async def test_waits_follow_the_pace() -> None:
    slow = {"text": "abcdef", "delay_seconds": 30, "chunk_delay_seconds": 30}
    scripted = ScriptedModel(Script.model_validate({"name": "t", "steps": [slow]}), pace=0)
    started = monotonic()
    async with client_of(scripted) as client:
        assert (await client.post("/v1/messages", json=body(stream=True))).status_code == 200
    assert monotonic() - started < 30


async def test_chunks_come_one_by_one_when_the_script_waits() -> None:
    steps = [{"text": "abcdef", "chunk_delay_seconds": 0.02}]
    async with client_of(model(steps=steps, delta_chars=2)) as client:
        async with client.stream("POST", "/v1/messages", json=body(stream=True)) as answer:
            arrivals = [monotonic() async for _ in answer.aiter_raw()]
    assert len(arrivals) == 9
    assert arrivals[-1] - arrivals[0] >= 0.1


async def test_a_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "model.sock"
    async with scripted_endpoint(model(), uds=path) as endpoint:
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url=endpoint.base_url) as client:
            assert (await client.get("/")).json()["script"] == "test"
    assert not await anyio.Path(path).exists()


async def test_a_stalled_request_does_not_hold_the_endpoint() -> None:
    async with scripted_endpoint(model(steps=[{"stall": "mid_stream"}])) as endpoint:
        client = httpx.AsyncClient(base_url=endpoint.base_url)
        request = client.build_request("POST", "/v1/messages", json=body(stream=True))
        answer = await client.send(request, stream=True)
        started = monotonic()
    assert monotonic() - started < 30
    await answer.aclose()
    await client.aclose()


async def test_an_error_inside_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with scripted_endpoint(model()):
            raise KeyError("mine")


async def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    async with scripted_endpoint(model()) as endpoint:
        with pytest.raises(OSError, match="in use"):
            async with serve(model(), port=int(endpoint.base_url.rpartition(":")[2])):
                pass
