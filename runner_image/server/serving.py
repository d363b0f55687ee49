"""Puts the application on a listening socket and keeps it there."""

import asyncio
import importlib.metadata
import socket

from uvicorn.config import Config
from uvicorn.server import Server

from .app import CodeSessionApp
from .executor import open_executor
from .forkserver import ForkServer
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
    """Serve on the running event loop, until SIGTERM or cancellation."""
    async with open_executor(settings.data, settings.limits, fork_server) as executor:
        app = CodeSessionApp(executor=executor, store=FileStore(settings.data), version=_version())
        config = Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACEFUL_SECONDS,
        )
        await Server(config).serve(sockets=[listener])


def _version() -> str:
    try:
        return importlib.metadata.version("foundationallm-claude-code")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a checkout that was bound into a sandbox without its metadata
