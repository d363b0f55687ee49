"""Between proxy and sandbox: pools that are full, tokens that expire, answers that are lost."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from pydantic import SecretStr

from context_client.direct import (
    BadAnswer,
    BadSession,
    DirectError,
    DirectSettings,
    Done,
    ExecutionFailed,
    FixedToken,
    NoSuchPlace,
    NotLetIn,
    NotOurImage,
    Patience,
    PoolFault,
    PoolFull,
    SessionProxy,
    Unreachable,
)
from context_client.direct.programs import MARK
from context_client.embedded.provider import SandboxEndpoint
from tests.context_client.direct.conftest import MODEL, UPN, Places

pytestmark = pytest.mark.anyio

STATUS = MARK + json.dumps({"generation": "g", "running": None, "last": None, "session": None, "lines": 0}) + "\n"
IMPATIENT = DirectSettings(patience=Patience(all_seconds=0.5, first_seconds=0.05))


def executed(output: str = STATUS, error: str = "") -> httpx.Response:
    return streamed(json.dumps({"detail": {"results": {}, "output": output, "error": error}}).encode())


def streamed(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, stream=httpx.ByteStream(content), headers=headers)


@asynccontextmanager
async def proxy_to(
    answer: Callable[[httpx.Request], httpx.Response], token: "FixedToken | Renewed | None" = None
) -> AsyncIterator[SessionProxy]:
    """A proxy before a pool whose answers the test writes."""
    endpoint = SandboxEndpoint(
        base_url="https://pool.example/region/", transport=httpx.MockTransport(answer), params={"api-version": "2025-02-02-preview"}
    )
    async with SessionProxy(endpoint, token=token, settings=IMPATIENT) as proxy:
        yield proxy


class Renewed:
    """A token source whose first token has expired."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def token(self, *, refresh: bool) -> str:
        self.asked.append(refresh)
        return "new" if refresh else "old"


async def test_a_call_carries_identifier_version_and_token() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return executed()

    async with proxy_to(answer, FixedToken(SecretStr("t"))) as proxy:
        await proxy.status("code-a|b(c)")
    (request,) = seen
    assert request.url.path == "/region/code/execute"
    assert dict(request.url.params) == {"identifier": "code-a|b(c)", "api-version": "2025-02-02-preview"}
    assert request.headers["authorization"] == "Bearer t"
    assert json.loads(request.content)["code"].startswith("from runner_image.direct.desk import main\n")


async def test_an_expired_token_is_renewed_once() -> None:
    source = Renewed()
    async with proxy_to(lambda r: executed() if "new" in r.headers["authorization"] else streamed(b"", 401), source) as proxy:
        await proxy.status("code-1")
    assert source.asked == [False, True]


async def test_a_full_pool_is_waited_for() -> None:
    answers = [streamed(b"{}", 429, {"retry-after": "0.1"}), streamed(b"", 503), executed(error="the process was killed"), executed()]
    async with proxy_to(lambda _: answers.pop(0)) as proxy:
        assert (await proxy.status("code-1")).generation == "g"
    assert answers == []


def cut(_: httpx.Request) -> httpx.Response:
    raise httpx.RemoteProtocolError("peer closed connection")


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        pytest.param(lambda _: streamed(b"no role", 403), NotLetIn, "no role", id="403"),
        pytest.param(lambda _: streamed(b"", 404), NoSuchPlace, "endpoint", id="404"),
        pytest.param(lambda _: streamed(b"full", 429), PoolFull, "full", id="429 for long"),
        pytest.param(lambda _: streamed(b"x" * 9999, 500), PoolFault, "status 500", id="500 for long"),
        pytest.param(lambda _: streamed(b"<html>"), BadAnswer, "Check the address", id="a web page"),
        pytest.param(lambda _: streamed(b'{"detail": {"output": 1, "error": ""}}'), BadAnswer, "no text", id="odd types"),
        pytest.param(lambda _: streamed(b"x" * (33 << 20)), BadAnswer, "longer than", id="endless"),
        pytest.param(lambda _: executed("nonsense"), BadAnswer, "another version", id="no answer"),
        pytest.param(
            lambda _: executed("", "ModuleNotFoundError: No module named 'runner_image'"), NotOurImage, "image", id="stock container"
        ),
        pytest.param(lambda _: executed("", "out of memory"), ExecutionFailed, "out of memory", id="not executed"),
        pytest.param(cut, Unreachable, "peer closed", id="cut for long"),
    ],
)
async def test_each_fault_has_its_error(answer: Callable[[httpx.Request], httpx.Response], error: type[DirectError], words: str) -> None:
    async with proxy_to(answer) as proxy:
        with pytest.raises(error, match=words) as caught:
            await proxy.status("code-1")
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("name", ["", "abc", "a.b.c.d", "a/../../b", "with blank", "ä" * 5, "x" * 129, "under_score"])
async def test_an_identifier_no_pool_takes_is_refused_before_anything_is_sent(name: str) -> None:
    async with proxy_to(cut) as proxy:
        with pytest.raises(BadSession):
            proxy.chat(name, "Hi")
        with pytest.raises(BadSession):
            await proxy.status(name)


class Lossy(httpx.AsyncBaseTransport):
    """Loses every second answer, after the sandbox did what it was asked."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.count = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        self.count += 1
        if self.count % 2:
            await response.aclose()
            raise httpx.ReadError("the answer was lost")
        return response


async def test_lost_answers_lose_and_double_nothing(places: Places) -> None:
    """Also the answer to the very start: the call is begun once."""
    await places.play(
        "lossy-1", {"text": "One.", "tool_use": [{"name": "Bash", "input": {"command": "echo x >> count.txt"}}]}, {"text": "Two."}
    )
    endpoint = await places.sandboxes.endpoint(session_id="lossy-1", upn=UPN)
    assert endpoint.transport is not None
    way = Lossy(endpoint.transport)
    async with SessionProxy(SandboxEndpoint(base_url=endpoint.base_url, transport=way), model=MODEL) as proxy:
        events = [event async for event in proxy.chat("lossy-1", "Go.")]
    assert [event.type for event in events] == ["progress", "progress", "text", "tool_start", "tool_end", "text", "done"]
    assert isinstance(events[-1], Done)
    assert events[-1].turns == 1
    assert way.count >= 4
    assert await places.execute("lossy-1", "print(open('/workspace/count.txt').read(), end='')") == "x\n"
