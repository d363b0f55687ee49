"""Sandboxes in Azure Container Apps session pools: one or many, of one or several regions.

A pool has no call to start or end a session: an identifier that it does not know takes a slot at its first call, and
gives it back a cooldown after its last. All of that is behind the transport that an endpoint carries.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import anyio
import httpx
from anyio import to_thread

from context_client.embedded.provider import SandboxEndpoint
from context_client.pools.admission import Admission
from context_client.pools.channel import PoolChannel
from context_client.pools.dialect import CodeInterpreterTransport
from context_client.pools.identifiers import pool_identifier
from context_client.pools.line import Observer
from context_client.pools.metrics import PoolFigures
from context_client.pools.session import PoolState, Session
from context_client.pools.settings import DynamicSessionsSettings
from context_client.pools.tokens import CachedTokens, TokenSource
from context_client.pools.transport import SessionTransport
from context_client.size import SandboxSize

_BASE_URL = "http://pool"  # never reached: the transport puts the pool's own address in its place
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=2, keepalive_expiry=60.0)
_SWEEP_SECONDS = 30.0
_FORGET_SECONDS = 60.0
_LONGEST_EXECUTION_SECONDS = 220.0  # of code-interpreter pools


class DynamicSessions(anyio.AsyncContextManagerMixin):
    """Session pools; a `SandboxProvider`, to be used as an async context manager.

    Args:
        settings: The pools, and how long to wait for them.
        tokens: Where tokens come from; kept and renewed here.
        observer: Is told the place in the line of sessions that wait.
    """

    def __init__(self, settings: DynamicSessionsSettings, *, tokens: TokenSource, observer: Observer | None = None) -> None:
        self._settings = settings
        self._key = settings.identifier_key.get_secret_value().encode()
        self._pools = tuple(PoolState(pool) for pool in settings.pools)
        self._admission = Admission(
            pools=self._pools,
            channel=PoolChannel(tokens=CachedTokens(tokens), connect_seconds=settings.connect_seconds),
            settings=settings,
            observer=observer,
            clock=anyio.current_time,
        )
        self._sessions: dict[tuple[str, str], tuple[Session, SandboxEndpoint, SessionTransport]] = {}
        self._transports: set[SessionTransport] = set()
        self._swept = float("-inf")
        self._tls: ssl.SSLContext | bool = False

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        if any(pool.endpoint.startswith("https:") for pool in self._settings.pools):
            self._tls = await to_thread.run_sync(httpx.create_ssl_context)  # reads the whole certificate store
        for state in self._pools:
            state.began = anyio.current_time()
        try:
            yield self
        finally:
            with anyio.move_on_after(10, shield=True):
                for transport in self._transports:
                    await transport.aclose()
            self._sessions.clear()

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        """Give the way to a session; nobody is asked for a slot before the first request on it.

        The endpoint says `identifier` and `api-version` itself, so our own session id never reaches a pool. How large a sandbox is, the
        pool decides: a size has no effect here, and the endpoint says none.
        """
        key = (upn, session_id)
        known = self._sessions.get(key)
        if known is None:
            await self._sweep()
            known = self._sessions[key] = self._open(session_id, upn)
        return known[1]

    def figures(self) -> tuple[PoolFigures, ...]:
        """Give the figures of every pool, in the order of the settings."""
        now = anyio.current_time()
        return tuple(state.figures(now) for state in self._pools)

    def waiting(self) -> int:
        """Say how many sessions stand in the line."""
        return len(self._admission.line)

    def _open(self, session_id: str, upn: str) -> tuple[Session, SandboxEndpoint, SessionTransport]:
        identifier = pool_identifier(self._key, upn=upn, session_id=session_id)
        session = Session(session_id=session_id, upn=upn, identifier=identifier, created=anyio.current_time())
        transport = SessionTransport(
            session=session,
            admission=self._admission,
            connect=lambda: httpx.AsyncHTTPTransport(limits=_LIMITS, verify=self._tls, trust_env=False),
            upload_limit_bytes=self._settings.upload_limit_bytes,
            clock=anyio.current_time,
        )
        self._transports.add(transport)
        way: httpx.AsyncBaseTransport = transport
        if self._settings.kind == "code-interpreter":
            way = CodeInterpreterTransport(transport, execution_seconds=min(self._settings.call_seconds, _LONGEST_EXECUTION_SECONDS))
        endpoint = SandboxEndpoint(
            base_url=_BASE_URL,
            transport=way,
            params={"identifier": identifier, "api-version": self._settings.api_version},
            timeout_seconds=self._settings.wait_seconds + self._settings.call_seconds,
        )
        return session, endpoint, transport

    async def _sweep(self) -> None:
        """Forget sessions without a slot, and close their connections; an identifier can be made again at any time."""
        now = anyio.current_time()
        if now < self._swept + _SWEEP_SECONDS:
            return
        self._swept = now
        for key, (session, _, transport) in list(self._sessions.items()):
            if not session.has_slot(now) and not session.admitting.locked() and session.idle_seconds(now) > _FORGET_SECONDS:
                del self._sessions[key]
                session.lose()
                self._transports.discard(transport)
                await transport.aclose()
