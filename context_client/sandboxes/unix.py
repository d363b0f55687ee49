"""HTTP over a Unix socket on asyncio's own streams.

The usual way reads such a socket with a callback that sets a future, and a request that is given up just when something arrives finds
that future cancelled (seen in anyio 4.16: `InvalidStateError` in the loop's error handler). asyncio's streams know no such moment, and they
ask the kernel to watch a socket once per connection, not once per read.
"""

import asyncio
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpcore
import httpx


def over_unix_socket(path: Path, limits: httpx.Limits) -> httpx.AsyncHTTPTransport:
    """Return a transport whose connections go to a socket.

    No TLS is spoken there. For a transport that is told nothing, httpx reads all certificates of the machine, which holds the event
    loop for some 20 ms; this one trusts none.

    Args:
        path: The socket; it need not be there yet.
        limits: How many connections there may be, and be kept.
    """
    transport = httpx.AsyncHTTPTransport(limits=limits, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    transport._pool = httpcore.AsyncConnectionPool(  # httpx takes no backend of the caller's; all it does with the pool stays
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        keepalive_expiry=limits.keepalive_expiry,
        uds=str(path),
        network_backend=_Backend(),
    )
    return transport


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to Unix sockets only."""

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                return _Stream(*await asyncio.open_unix_connection(path))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{path} does not answer") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout("nothing was said in time") from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout("nothing was taken in time") from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:  # it was broken before; closed it is all the same
            return

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked of an idle connection, to know whether the other end has closed it
            return self._reader.at_eof() or self._writer.is_closing()
        return self._writer.get_extra_info("socket") if info == "socket" else None
