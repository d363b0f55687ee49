"""Lines to sandboxes, kept open.

One turn makes hundreds of calls to one sandbox; a new connection, or a new TLS context, for each would cost more than
the call. A line lives as long as its provider names the same endpoint, and closes when nobody speaks on it.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.to_thread
import httpx

from context_client.embedded.container import SandboxLine
from context_client.embedded.problems import NETWORK, SandboxUnreachable
from context_client.embedded.provider import SandboxEndpoint, SandboxProvider
from context_client.size import SandboxSize

_MOST_LINES = 512
# A long poll and a hundred quick calls share one sandbox; none may queue behind another. Few are kept when idle: each
# request looks at every idle connection, with a system call for each.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=120.0)


@dataclass
class _Open:
    endpoint: SandboxEndpoint
    http: httpx.AsyncClient
    line: SandboxLine
    speakers: int = 0
    retired: bool = False


class SandboxLines:
    """Open lines by session; get one from `open_lines`."""

    def __init__(self, *, answer_limit: int) -> None:
        self._answer_limit = answer_limit
        self._open: dict[tuple[str, str], _Open] = {}
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def lend(
        self, provider: SandboxProvider, *, session_id: str, upn: str, versioned: bool, size: SandboxSize | None = None
    ) -> AsyncIterator[SandboxLine]:
        """Give the line to a session's sandbox, for the length of the block; one that is started for it gets the size.

        Raises:
            SandboxUnreachable: The provider has no endpoint for it.
        """
        try:
            endpoint = await provider.endpoint(session_id=session_id, upn=upn, size=size)
        except Exception as error:
            # Providers are strangers and may raise anything; the caller's answer must be well formed all the same.
            message = f"the sandbox could not be started: {type(error).__name__}: {error}"
            raise SandboxUnreachable(NETWORK, message) from error
        opened = await self._line(endpoint, session_id, upn, versioned)
        opened.speakers += 1
        try:
            yield opened.line
        finally:
            opened.speakers -= 1
            await self._close_if_idle(opened)

    async def close(self) -> None:
        """Close every line."""
        while self._open:
            _, opened = self._open.popitem()
            await opened.http.aclose()

    async def _line(self, endpoint: SandboxEndpoint, session_id: str, upn: str, versioned: bool) -> _Open:
        key = (upn, session_id)
        tls = await self._tls_context() if endpoint.transport is None and endpoint.base_url[:6] == "https:" else None
        known = self._open.pop(key, None)
        if known is not None and (known.endpoint is endpoint or known.endpoint == endpoint):
            self._open[key] = known  # put at the end again: the first is the one to close when there are too many
            return known
        http = httpx.AsyncClient(
            transport=endpoint.transport or httpx.AsyncHTTPTransport(limits=_LIMITS, verify=tls or False),
            headers={"Accept-Encoding": "identity"} | dict(endpoint.headers),
            timeout=httpx.Timeout(endpoint.timeout_seconds),
            trust_env=False,
        )
        line = SandboxLine(
            http=http,
            endpoint=endpoint,
            session_id=session_id,
            versioned=versioned,
            answer_limit=self._answer_limit,
        )
        opened = self._open[key] = _Open(endpoint=endpoint, http=http, line=line)
        opened.speakers += 1  # not closed by the sweep below
        if known is not None:
            await self._retire(known)
        while len(self._open) > _MOST_LINES:
            await self._retire(self._open.pop(next(iter(self._open))))
        opened.speakers -= 1
        return opened

    async def _retire(self, opened: _Open) -> None:
        opened.retired = True
        await self._close_if_idle(opened)

    async def _close_if_idle(self, opened: _Open) -> None:
        if opened.retired and opened.speakers == 0:
            with anyio.move_on_after(5, shield=True):
                await opened.http.aclose()

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            # Reads the whole certificate store: tens of milliseconds that the event loop should not spend.
            self._tls = await anyio.to_thread.run_sync(httpx.create_ssl_context)
        return self._tls


@asynccontextmanager
async def open_lines(*, answer_limit: int) -> AsyncIterator[SandboxLines]:
    """Hold lines, and close them at the end."""
    lines = SandboxLines(answer_limit=answer_limit)
    try:
        yield lines
    finally:
        with anyio.move_on_after(10, shield=True):
            await lines.close()
