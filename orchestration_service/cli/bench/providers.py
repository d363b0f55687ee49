"""Sandboxes in containers, and what an emulated session pool puts between the service and a sandbox.

The image is the one of the settings (`CLAUDE_CODE_CONTAINER_IMAGE`). Where there is no engine, or no image that fits this
checkout, containers are left out, and it is said why.
"""

import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import cast

import httpx
from pydantic import SecretStr
from starlette.types import ASGIApp

from context_client.embedded.provider import SandboxEndpoint
from context_client.pools import DynamicSessions, DynamicSessionsSettings, SessionPool
from context_client.pools.emulator import EmulatorSettings, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from context_client.sandboxes.containers import SandboxMismatch
from context_client.sandboxes.errors import SandboxUnavailable
from context_client.sandboxes.local import LocalSandboxes
from orchestration_service.cli.bench.figure import Figure, LeftOut
from orchestration_service.cli.bench.mailbox import one_exchange
from orchestration_service.cli.bench.stage import WARM_SECONDS
from orchestration_service.cli.bench.turns import first_model_call
from orchestration_service.errors import ServiceError
from orchestration_service.sandboxes import open_sandboxes
from orchestration_service.scripted.endpoint import serve
from orchestration_service.sessions import bootstrap
from orchestration_service.settings import Settings, load_settings
from workflow_schemas.mailbox import Exchange, encode

_PAIRS = 300
_UPN = "bench@example.com"
_BEHIND_THE_POOL = "pool"  # whose sessions the emulator's are


async def container_cold_start() -> list[Figure] | LeftOut:
    """Measure the start of a container whose image is warm, as the start of a sandbox of this machine is measured."""
    if missing := await _what_is_missing():
        return missing
    return [await first_model_call("cold container to first model call, over the bare CLI's", 2.0, sandboxes="container")]


async def container_exchange() -> list[Figure] | LeftOut:
    """Measure one exchange with a container, as one with a sandbox of this machine is measured."""
    if missing := await _what_is_missing():
        return missing
    with TemporaryDirectory(prefix="claude-code-bench-") as folder:
        async with open_sandboxes(_containers(folder)) as chosen:
            return [await one_exchange("one exchange on the container provider, p50", 20, chosen.provider)]


async def _what_is_missing() -> LeftOut | None:
    """Start one container as the service does; a start that fails for another reason than what is missing here is a failure."""
    with TemporaryDirectory(prefix="claude-code-bench-") as folder:
        try:
            async with open_sandboxes(_containers(folder)) as chosen:
                await chosen.provider.endpoint(session_id="bench", upn=_UPN)
        except SandboxUnavailable as error:
            return LeftOut(str(error))
        except SandboxMismatch as error:
            return LeftOut(f"{error} Build it with ./dev image.")
    return None


def _containers(folder: str) -> Settings:
    return load_settings(instance_id=str(uuid.uuid4()), api_key="bench-key", data_dir=Path(folder), sandboxes="container")


async def emulated_pool() -> list[Figure]:
    """Measure one call to one sandbox, straight and through provider, socket and emulator, taking turns."""
    async with _two_ways() as ways:
        await asyncio.sleep(WARM_SECONDS)
        pairs = [(await ways.straight.call(), await ways.through_pool.call()) for _ in range(_PAIRS)]
    straight, through = [one for one, _ in pairs], [other for _, other in pairs]
    added = median(other - one for one, other in pairs)
    detail = f"{median(straight):.1f} ms straight, {median(through):.1f} ms through it, p95 {quantiles(through, n=20)[-1]:.1f} ms"
    return [Figure("what the pool emulator adds to a call, p50", added, "ms", 5, detail)]


@dataclass(frozen=True)
class _Way:
    """A way to the sandbox."""

    http: httpx.AsyncClient

    async def call(self) -> float:
        """Make the smallest call a turn makes, an exchange about a run that is not there, and return its milliseconds."""
        code = bootstrap(encode(Exchange(run_id="bench-exchange")))
        since = time.perf_counter()
        answer = await self.http.post("/code/execute", json={"code": code})
        taken = (time.perf_counter() - since) * 1000
        if answer.status_code != 200 or not answer.json()["detail"]["output"]:
            raise ServiceError(f"a measured call failed: HTTP {answer.status_code} {answer.text[:500]}")
        return taken


@dataclass(frozen=True)
class _Ways:
    """Two ways to one sandbox."""

    straight: _Way
    through_pool: _Way


@asynccontextmanager
async def _two_ways() -> AsyncIterator[_Ways]:
    key = secrets.token_hex(32)
    async with AsyncExitStack() as stack:
        sandboxes = await stack.enter_async_context(LocalSandboxes())
        emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(key)), sandboxes)
        stack.push_async_callback(emulator.aclose)
        pool = await stack.enter_async_context(serve(cast(ASGIApp, emulator)))
        pools = (SessionPool(name="emulated", endpoint=pool.base_url),)
        settings = DynamicSessionsSettings(pools=pools, identifier_key=SecretStr(key))
        sessions = await stack.enter_async_context(DynamicSessions(settings, tokens=LocalTokens(key.encode())))
        endpoint = await sessions.endpoint(session_id="bench", upn=_UPN)
        through_pool = _Way(await stack.enter_async_context(_client(endpoint)))
        await through_pool.call()  # takes a slot
        slot = emulator.slots.find(str(endpoint.params["identifier"]))
        if slot is None:
            raise ServiceError("the emulated pool has no slot for the session of the measurement")
        same = await sandboxes.endpoint(session_id=slot.guid, upn=_BEHIND_THE_POOL)
        yield _Ways(_Way(await stack.enter_async_context(_client(same))), through_pool)


def _client(endpoint: SandboxEndpoint) -> httpx.AsyncClient:
    timeout = endpoint.timeout_seconds
    return httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, params=dict(endpoint.params), timeout=timeout)
