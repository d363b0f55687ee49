"""The server in this process, on a Unix socket, with a real fork server and files in a temporary directory."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest
from uvicorn.server import Server

from runner_image.server.forkserver import ForkServer
from runner_image.server.serving import open_app, server_config
from runner_image.server.settings import ExecutionLimits, ServerSettings

Serve = Callable[[ExecutionLimits], AbstractAsyncContextManager[httpx.AsyncClient]]
Run = Callable[[str], Awaitable[dict[str, str]]]


@pytest.fixture
def settings(short_directory: Path) -> ServerSettings:
    return ServerSettings(data=short_directory / "data", state=short_directory / "state", uds=short_directory / "s.sock")


@pytest.fixture
def serve(settings: ServerSettings) -> Serve:
    """Start a server with limits of the test's choice."""

    @asynccontextmanager
    async def start(limits: ExecutionLimits) -> AsyncIterator[httpx.AsyncClient]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(settings.uds))
            listener.listen(256)
            async with open_app(replace(settings, limits=limits), ForkServer(settings.data)) as app, anyio.create_task_group() as group:
                server = Server(server_config(app))
                group.start_soon(server.serve, [listener])
                limit = httpx.Limits(max_connections=None, max_keepalive_connections=4)
                transport = httpx.AsyncHTTPTransport(uds=str(settings.uds), limits=limit)
                async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:
                    yield client
                server.should_exit = True

    return start


@pytest.fixture
async def client(serve: Serve, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(ExecutionLimits()) as client:
        yield client


@pytest.fixture
def data(settings: ServerSettings) -> Path:
    return settings.data
