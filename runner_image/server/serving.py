"""Puts the application on a listening socket and keeps it there."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from uvicorn.config import Config
from uvicorn.server import Server

from .app import CodeSessionApp
from .courier import Courier
from .executor import open_executor
from .forkserver import ForkServer
from .guard import GuardedProtocol
from .settings import ServerSettings
from .store import FileStore

_KEEP_ALIVE_SECONDS = 3600  # a client that speaks every few seconds must never meet a connection just closed
_GRACEFUL_SECONDS = 2


def run(settings: ServerSettings, listener: socket.socket, fork_server: ForkServer) -> None:
    """Serve until the process is told to stop.

    Args:
        settings: Where the files are and what executions may use.
        listener: A listening socket.
        fork_server: Already started; owned from now on.
    """
    asyncio.run(serve(settings, listener, fork_server))


async def serve(settings: ServerSettings, listener: socket.socket, fork_server: ForkServer) -> None:
    """Serve on the running event loop, until SIGTERM."""
    async with open_app(settings, fork_server) as app:
        await Server(server_config(app)).serve(sockets=[listener])


@asynccontextmanager
async def open_app(settings: ServerSettings, fork_server: ForkServer) -> AsyncIterator[CodeSessionApp]:
    """Make the application, with what it runs code in; both end together.

    Args:
        settings: Where the files are and what executions may use.
        fork_server: Already started; owned from now on.
    """
    async with open_executor(settings.data, settings.limits, fork_server) as executor:
        courier = Courier(settings.state, settings.limits.timeout_seconds)
        yield CodeSessionApp(executor=executor, store=FileStore(settings.data), courier=courier)


def server_config(app: CodeSessionApp) -> Config:
    """Configure the web server: nothing is loaded or logged that five routes do not need."""
    return Config(
        app,
        http=GuardedProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=1024,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACEFUL_SECONDS,
    )
