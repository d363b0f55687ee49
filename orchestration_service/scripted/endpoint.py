"""Serves an ASGI app on a TCP port or a Unix socket for as long as a block runs.

The scripted model is reached over real HTTP, like a real one, so that the broker, the relay and the CLI take the same
way in a demonstration, in a test and in production.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import uvicorn
from starlette.types import ASGIApp

from orchestration_service.scripted.app import ScriptedModel

_STOP_SECONDS = 5.0
_KEEP_ALIVE_SECONDS = 120  # longer than clients keep an idle connection: one that is closed as a request leaves loses the request


@dataclass(frozen=True)
class ScriptedEndpoint:
    """Where an app is served."""

    base_url: str
    """Address for clients, without a slash at the end; with a Unix socket the host name means nothing."""
    uds: Path | None
    """Unix socket to connect to, or nothing for TCP."""


class _EmbeddedServer(uvicorn.Server):
    """A uvicorn server that says when it listens, leaves the signals to the program around it, and stops at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.startup_over = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.startup_over.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for request in tuple(self.server_state.tasks):  # a stalled step would otherwise hold the server for ever
            request.cancel()
        await super().shutdown(sockets)


@asynccontextmanager
async def serve(app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0, uds: Path | None = None) -> AsyncIterator[ScriptedEndpoint]:
    """Serve an app until the block ends; requests that still run then are cut.

    Args:
        app: what to serve, for instance a `ScriptedModel`.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        uds: Unix socket to listen on instead; it must not exist, and is removed at the end.

    Raises:
        OSError: the address cannot be used.
    """
    listener = _listen(host, port, uds)
    address = f"http://{host}:{listener.getsockname()[1]}" if uds is None else "http://model.local"
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_keep_alive=_KEEP_ALIVE_SECONDS)
    server = _EmbeddedServer(config)
    task = asyncio.create_task(server.serve([listener]), name=f"serve {address}")
    try:
        await server.startup_over.wait()
        if task.done():
            await task
        yield ScriptedEndpoint(address, uds)
    finally:
        server.should_exit = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
            await asyncio.wait({task})
            if uds is not None:
                await anyio.Path(uds).unlink(missing_ok=True)
        task.cancel()
        listener.close()


def scripted_endpoint(
    model: ScriptedModel, *, port: int = 0, uds: Path | None = None
) -> contextlib.AbstractAsyncContextManager[ScriptedEndpoint]:
    """Serve a scripted model on this machine; see `serve`."""
    return serve(model, port=port, uds=uds)


def _listen(host: str, port: int, uds: Path | None) -> socket.socket:
    # asyncio turns Nagle's algorithm off only where the protocol is named; without it each answer takes 40 ms longer
    family, protocol = (socket.AF_INET, socket.IPPROTO_TCP) if uds is None else (socket.AF_UNIX, 0)
    listener = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        if uds is None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        else:
            listener.bind(str(uds))
    except BaseException:
        listener.close()
        raise
    return listener
