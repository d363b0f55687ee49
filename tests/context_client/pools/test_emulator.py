"""The emulated pool is what the baseline says, and the commands around it work."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import anyio
import httpx
import pytest

from context_client.pools.local_tokens import LocalTokens, sign, token_problem
from context_client.pools.tokens import AUDIENCE
from tests.context_client.pools.conftest import KEY, World

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]


async def test_the_emulator_holds_the_baseline(world: World) -> None:
    """Every claim that can be replayed is the same, the full pool included."""
    token = (await LocalTokens(KEY.encode()).fetch()).value
    async with world.pool(max_sessions=4) as pool:
        asked = [sys.executable, "-m", "context_client.pools.parity", "--url", pool.url, "--token", token, "--fill", "5"]
        told = await anyio.run_process(asked, check=False)
    lines = told.stdout.decode().splitlines()
    assert not [line for line in lines if "differs" in line]
    assert (told.returncode, sum("same" in line for line in lines), sum("not tried" in line for line in lines)) == (0, 14, 1)


async def test_another_pool_differs(world: World) -> None:
    token = (await LocalTokens(KEY.encode()).fetch()).value
    async with world.pool(max_sessions=4, full_status=500, timing_headers=True) as pool:
        asked = [sys.executable, "-m", "context_client.pools.parity", "--url", pool.url, "--token", token, "--fill", "5"]
        told = await anyio.run_process(asked, check=False)
    found = [line.split()[0] for line in told.stdout.decode().splitlines() if "differs" in line]
    assert found == ["timing.custom_containers_send_them", "capacity.full_status"]
    assert told.returncode == 1


async def test_the_token_goes_no_further_than_the_pool(world: World) -> None:
    class Listener(httpx.AsyncBaseTransport):
        heard: list[httpx.Headers]

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            self.heard.append(request.headers)
            return httpx.Response(200)

    listener = Listener()
    listener.heard = []
    async with world.pool() as pool:
        pool.containers.endpoint = _only(listener)
        async with world.provider(pool) as sessions, world.client(sessions, "one") as client:
            await client.post("/code/execute", json={"code": ""}, headers={"x-kept": "1"})
    assert [headers.get("x-kept") for headers in listener.heard] == [None, "1"]
    assert not any("authorization" in headers for headers in listener.heard)


def _only(transport: httpx.AsyncBaseTransport) -> object:
    from context_client.embedded.provider import SandboxEndpoint

    async def endpoint(*, session_id: str, upn: str) -> SandboxEndpoint:
        return SandboxEndpoint(base_url="http://container", transport=transport)

    return endpoint


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        pytest.param("", "its signature is not right", id="nothing"),
        pytest.param("a.b.c", "it is not a token", id="not encoded"),
        pytest.param("a.b.cccc", "its signature is not right", id="not signed"),
        pytest.param("\ud800.é.!", "its signature is not right", id="no text"),
        pytest.param(sign(b"k", {"aud": AUDIENCE, "nbf": 0, "exp": 500}), "it has expired", id="expired"),
        pytest.param(sign(b"k", {"aud": AUDIENCE, "nbf": 2000, "exp": 3000}), "it is not valid yet", id="early"),
        pytest.param(sign(b"k", {"aud": ["x"], "nbf": 0, "exp": 3000}), f"its audience is not {AUDIENCE!r}", id="audience"),
        pytest.param(sign(b"k", {"aud": AUDIENCE}), "it is not a token", id="no times"),
        pytest.param(sign(b"k", {"aud": AUDIENCE, "nbf": 0, "exp": 3000}), None, id="good"),
        pytest.param(sign(b"k", {"aud": AUDIENCE, "nbf": 0, "exp": 800}), None, id="within the leeway"),
    ],
)
def test_tokens_are_checked(token: str, problem: str | None) -> None:
    assert token_problem(b"k", token, audience=AUDIENCE, now=1000) == problem


async def test_the_command_serves_real_sandboxes() -> None:
    """It prints an address and a token, with which code runs."""
    command = [sys.executable, "-P", "-m", "context_client.pools.emulator", "--port", "0", "--cooldown", "60"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC")} | {"PYTHONPATH": str(ROOT)}
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            assert process.stdout is not None
            said = b""
            while said.count(b"\n") < 2:
                said += await process.stdout.receive()
            url, token = said.decode().split()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
            answer = await _first_answer(url, token)
            assert answer.json()["detail"]["output"] == "42\n"
        finally:
            process.terminate()
            with anyio.fail_after(30, shield=True):
                await process.wait()


async def _first_answer(url: str, token: str) -> httpx.Response:
    deadline = time.monotonic() + 60
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
        while True:
            try:
                return await client.post("/code/execute", params={"identifier": "abcd"}, json={"code": "print(42)"})
            except httpx.ConnectError:
                assert time.monotonic() < deadline
                await anyio.sleep(0.1)
