"""The way to one sandbox: counts what is under way, so that idle ones are known, and tells why a dead one is dead."""

from collections.abc import AsyncIterator, Callable
from typing import cast

import anyio
import httpx

from .sandbox import Sandbox

_SETTLE_SECONDS = 1.0

# Every request makes the pool look at all its idle connections, with a system call for each: hundreds kept alive make
# a burst of requests five times slower. New ones cost next to nothing on a Unix socket.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=4)


class SandboxTransport(httpx.AsyncBaseTransport):
    """HTTP over the sandbox's Unix socket."""

    def __init__(self, sandbox: Sandbox, clock: Callable[[], float] = anyio.current_time) -> None:
        self._sandbox = sandbox
        self._clock = clock
        self._under_way = 0
        self._last_used = clock()
        self._inner = self._connect()
        self._closed = False

    def idle_seconds(self) -> float:
        """Say for how long nothing was asked and nothing was being answered."""
        return 0.0 if self._under_way else self._clock() - self._last_used

    def touch(self) -> None:
        """Start the idle time anew."""
        self._last_used = self._clock()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request.

        Raises:
            httpx.TransportError: As usual; with the sandbox's own reason if it is gone.
        """
        if self._sandbox.ended is not None:
            raise httpx.ConnectError(self._sandbox.ended, request=request)
        if self._closed:
            self._inner, self._closed = self._connect(), False  # the same endpoint may be taken up again
        self._under_way += 1
        try:
            response = await self._inner.handle_async_request(request)
        except httpx.TimeoutException:
            self._done()
            raise
        except httpx.TransportError as error:
            self._done()
            reason = await self._sandbox.settle(_SETTLE_SECONDS)
            if reason is None:
                raise
            raise type(error)(f"The sandbox was ended: {reason}", request=request) from error
        except BaseException:
            self._done()
            raise
        stream = cast(httpx.AsyncByteStream, response.stream)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_CountedStream(stream, self._done),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections; the sandbox goes on."""
        self._closed = True
        await self._inner.aclose()

    def _connect(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(uds=str(self._sandbox.socket_path), limits=_LIMITS)

    def _done(self) -> None:
        self._under_way -= 1
        self._last_used = self._clock()


class _CountedStream(httpx.AsyncByteStream):
    """A body whose end is told once."""

    def __init__(self, inner: httpx.AsyncByteStream, done: Callable[[], None]) -> None:
        self._inner = inner
        self._done = done
        self._told = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            yield chunk

    async def aclose(self) -> None:
        if not self._told:
            self._told = True
            self._done()
        await self._inner.aclose()
