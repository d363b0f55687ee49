"""Sandboxes behind a pool are sandboxes: the container's suite through provider, socket, emulator and bubblewrap."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from context_client import ContextClient
from context_client.conformance import container, context_api
from context_client.conformance.context_api import Ground
from context_client.conformance.provider import check_sizes
from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.embedded.settings import EmbeddedSettings
from context_client.pools import DynamicSessions, DynamicSessionsSettings, SessionPool
from context_client.pools.emulator import EmulatorSettings, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from context_client.sandboxes import LocalSandboxes, LocalSandboxSettings
from tests.context_client.pools.conftest import KEY, UPN, serving

pytestmark = pytest.mark.anyio

IN_THE_POOLS_WORDS = {"properties": {"codeInputType": "inline", "executionType": "synchronous", "code": "print(1)"}}
"""What programs send that were written for a code-interpreter pool."""


@pytest.fixture(scope="module")
async def real_sessions(anyio_backend: str) -> AsyncIterator[DynamicSessions]:
    """A provider, an emulated pool on a socket, and real sandboxes behind it."""
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False)) as sandboxes:
        emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(KEY), timing_headers=True), sandboxes)
        async with serving(emulator) as url:
            settings = DynamicSessionsSettings(pools=(SessionPool(name="one", endpoint=url),), identifier_key=SecretStr("k" * 32))
            async with DynamicSessions(settings, tokens=LocalTokens(KEY.encode())) as sessions:
                yield sessions
        await emulator.aclose()


@pytest.fixture
async def sandbox(real_sessions: DynamicSessions, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    endpoint = await real_sessions.endpoint(session_id="code-shared", upn=UPN)
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=60) as client:
        yield client


@pytest.mark.parametrize("name", container.CHECKS)
async def test_a_sandbox_behind_a_pool_conforms(sandbox: httpx.AsyncClient, name: str) -> None:
    assert await container.run_check(name, sandbox) is None


async def test_who_asks_in_a_code_interpreter_pools_words_is_answered_in_them(sandbox: httpx.AsyncClient) -> None:
    """By our server itself: a pool of custom containers passes everything on."""
    told = (await sandbox.post("/code/execute", json=IN_THE_POOLS_WORDS)).json()
    assert (told["status"], told["result"]["stdout"]) == ("Succeeded", "1\n")
    assert (told["properties"]["status"], told["properties"]["stdout"], told["properties"]["result"]) == ("Success", "1\n", "")


async def test_timing_headers_become_figures(sandbox: httpx.AsyncClient, real_sessions: DynamicSessions) -> None:
    await container.execute(sandbox, "import time; time.sleep(0.05)")
    (figures,) = real_sessions.figures()
    assert figures.calls.count >= 1
    assert sum(figures.buckets.values()) == figures.calls.count
    assert figures.timings["container_execution"].longest_seconds >= 0.05
    assert figures.new_allocations == 0, "the slot was asked for before"
    assert figures.placed == figures.held == 1


@pytest.mark.parametrize("name", context_api.CHECKS)
async def test_the_context_api_conforms_with_its_sandboxes_in_a_pool(
    name: str, settings: EmbeddedSettings, sessions: DynamicSessions, ground_for: Callable[[ContextClient], Ground]
) -> None:
    async with open_app(settings, providers={DEFAULT_PROVIDER_NAME: sessions}) as app:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        key = settings.api_key.get_secret_value()
        async with ContextClient(base_url="http://context", api_key=key, instance_id=settings.instance_id, transport=transport) as client:
            assert await context_api.run_check(name, ground_for(client)) is None


def test_every_fact_has_a_source_and_a_date() -> None:
    text = (Path(container.__file__).parents[1] / "pools" / "baseline.json").read_text(encoding="utf-8")
    assert all({"value", "status", "source", "date"} == fact.keys() for fact in json.loads(text)["facts"].values())


async def test_a_pool_says_nothing_of_sizes(real_sessions: DynamicSessions) -> None:
    assert await check_sizes(real_sessions) is None
