"""Emulated pools on real sockets, with small real containers or real sandboxes behind them."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette

from context_client.embedded.provider import SandboxEndpoint
from context_client.pools import DynamicSessions, DynamicSessionsSettings, SessionPool, Waiting
from context_client.pools.emulator import EmulatorSettings, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from context_client.size import SandboxSize

KEY = "a-key-that-both-ends-share"
UPN = "dana@contoso.example"


class Containers:
    """One container per session of a pool, each on a folder of its own."""

    def __init__(self, folder: Path, container: Callable[[Path], Starlette]) -> None:
        self._folder = folder
        self._container = container
        self.endpoints: dict[str, SandboxEndpoint] = {}

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        if session_id not in self.endpoints:
            files = self._folder / session_id
            files.mkdir(parents=True)
            self.endpoints[session_id] = SandboxEndpoint(
                base_url="http://container", transport=httpx.ASGITransport(app=self._container(files))
            )
        return self.endpoints[session_id]


class Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, app: object) -> None:
        config = uvicorn.Config(app, log_level="critical", lifespan="off", date_header=False, http="h11")  # type: ignore[arg-type]
        super().__init__(config)
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def serving(app: object) -> AsyncIterator[str]:
    """Serve an app on a free port; gives its address."""
    # asyncio turns Nagle's algorithm off only where the protocol is named; without that each answer takes 40 ms longer
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        server = Server(app)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: server.serve(sockets=[bound]))
            await server.listening.wait()
            try:
                yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            finally:
                server.should_exit = True


class Pool:
    """A pool that is served, and what is behind it."""

    def __init__(self, emulator: PoolEmulator, url: str, containers: Any) -> None:
        self.emulator = emulator
        self.url = url
        self.containers = containers


class World:
    """Makes pools and providers, and speaks to sessions as the server does."""

    def __init__(self, folder: Path, container: Callable[[Path], Starlette]) -> None:
        self._folder = folder
        self._container = container
        self.news: list[Waiting] = []

    @asynccontextmanager
    async def pool(self, **more: Any) -> AsyncIterator[Pool]:
        self._folder = self._folder / "next"
        containers = Containers(self._folder, self._container)
        emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(KEY), **more), containers)
        async with serving(emulator) as url:
            yield Pool(emulator, url, containers)
        await emulator.aclose()

    @asynccontextmanager
    async def provider(self, *pools: Pool, cooldown: float = 300.0, tokens: Any = None, **more: Any) -> AsyncIterator[DynamicSessions]:
        listed = tuple(SessionPool(name=f"pool-{n}", endpoint=pool.url, cooldown_seconds=cooldown) for n, pool in enumerate(pools))
        given = {"wait_seconds": 20, "retry_seconds": 0.05, "unreachable_seconds": 0.3} | more
        settings = DynamicSessionsSettings(pools=listed, identifier_key=SecretStr("k" * 32), **given)
        async with DynamicSessions(settings, tokens=tokens or LocalTokens(KEY.encode()), observer=self.news.append) as sessions:
            yield sessions

    @asynccontextmanager
    async def client(self, sessions: DynamicSessions, session_id: str, upn: str = UPN) -> AsyncIterator[httpx.AsyncClient]:
        endpoint = await sessions.endpoint(session_id=session_id, upn=upn)
        async with httpx.AsyncClient(
            transport=endpoint.transport, base_url=endpoint.base_url, params=dict(endpoint.params), timeout=30
        ) as client:
            yield client


@pytest.fixture
def world(tmp_path: Path, container_on: Callable[[Path], Starlette]) -> World:
    return World(tmp_path, container_on)


@pytest.fixture
async def pool(world: World) -> AsyncIterator[Pool]:
    async with world.pool() as pool:
        yield pool


@pytest.fixture
async def sessions(world: World, pool: Pool) -> AsyncIterator[DynamicSessions]:
    async with world.provider(pool) as sessions:
        yield sessions


@pytest.fixture
async def client(world: World, sessions: DynamicSessions) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client(sessions, "code-one") as client:
        yield client


@pytest.fixture
def suppressed() -> Any:
    return contextlib.suppress
