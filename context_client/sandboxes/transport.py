"""The way to one sandbox: counts what is under way, so that idle ones are known, and tells why a dead one is dead."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio
import httpx

from context_client.counted import counted
from context_client.sandboxes.unix import over_unix_socket

_SETTLE_SECONDS = 1.0

# Every request makes the pool look at all its idle connections, with a system call for each: hundreds kept alive make
# a burst of requests five times slower. New ones cost next to nothing on a Unix socket.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=4)


def over_socket(path: Path) -> httpx.AsyncHTTPTransport:
    """HTTP over the Unix socket of a sandbox."""
    return over_unix_socket(path, _LIMITS)


class Reached(Protocol):
    """What a transport needs of a sandbox, a local one or a container."""

    @property
    def socket_path(self) -> Path:
        """Where its server is reached."""

    @property
    def ended(self) -> str | None:
        """Why it is gone, in a sentence; None while it runs and while nobody has noticed."""

    async def settle(self, seconds: float) -> str | None:
        """Wait a moment for an end that is under way, after its connection broke; give the reason like `ended`.

        Args:
            seconds: How long to wait for signs of an end.
        """


class SandboxTransport(httpx.AsyncBaseTransport):
    """HTTP over the sandbox's Unix socket."""

    def __init__(self, sandbox: Reached, clock: Callable[[], float] = anyio.current_time) -> None:
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
        return counted(response, self._done)

    async def aclose(self) -> None:
        """Close the connections; the sandbox goes on."""
        self._closed = True
        await self._inner.aclose()

    def _connect(self) -> httpx.AsyncHTTPTransport:
        return over_socket(self._sandbox.socket_path)

    def _done(self) -> None:
        self._under_way -= 1
        self._last_used = self._clock()
