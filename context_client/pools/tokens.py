"""Tokens for session pools: fetched once, kept, renewed ahead of their end.

Nothing here imports the Azure packages: a credential is anything with their asynchronous `get_token`, so the composition
root hands in `azure.identity.aio.DefaultAzureCredential()` (extra `azure`) and tests hand in their own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

SCOPE = "https://dynamicsessions.io/.default"
"""What a token for session pools is asked for."""

_FETCH_SECONDS = 30.0

AUDIENCE = "https://dynamicsessions.io"
"""The `aud` claim that pools demand."""


@dataclass(frozen=True, kw_only=True)
class PoolToken:
    """A token and its end."""

    value: str
    """What goes behind `Bearer`; never logged."""

    expires_at: float
    """Seconds since 1970 by the issuer's clock."""

    def __repr__(self) -> str:
        """Describe it without the value, which must not meet a log."""
        return f"PoolToken(expires_at={self.expires_at!r})"


class TokenSource(Protocol):
    """Where fresh tokens come from."""

    async def fetch(self) -> PoolToken:
        """Get a token; called rarely.

        Raises:
            Exception: Anything; whoever asked sees the message.
        """
        ...


class Credential(Protocol):
    """The part of an asynchronous azure-identity credential that is used."""

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """Get an object with `token` and `expires_on`."""
        ...


class EntraTokens:
    """Tokens of an Entra identity; its owner closes the credential."""

    def __init__(self, credential: Credential, *, scope: str = SCOPE) -> None:
        self._credential = credential
        self._scope = scope

    async def fetch(self) -> PoolToken:
        """Ask the identity; azure-identity keeps a cache of its own and renews in time."""
        token = await self._credential.get_token(self._scope)
        return PoolToken(value=token.token, expires_at=float(token.expires_on))


class FixedToken:
    """One token that somebody else got, for a command line."""

    def __init__(self, value: str) -> None:
        self._value = value

    async def fetch(self) -> PoolToken:
        """Give it; its end is unknown here."""
        return PoolToken(value=self._value, expires_at=float("inf"))


class CachedTokens:
    """Gives the present token, and gets the next one before it ends.

    Inside `ahead_seconds` before the end one caller fetches while the others go on with the token that is still good.
    """

    def __init__(self, source: TokenSource, *, ahead_seconds: float = 300.0, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._ahead_seconds = ahead_seconds
        self._clock = clock
        self._token: PoolToken | None = None
        self._fetching = anyio.Lock()
        self.fetched = 0
        """How many tokens were fetched."""

    async def get(self, *, rejected: PoolToken | None = None) -> PoolToken:
        """Give a token.

        Args:
            rejected: A token that a pool refused; callers with the same one share a single fetch.

        Raises:
            Exception: The source has none to give and the last one is at its end or was refused.
        """
        token = self._token
        if token is None or token is rejected or self._left(token) <= 0:
            async with self._fetching:
                if self._token is token:  # else somebody fetched meanwhile
                    await self._fetch()
                assert self._token is not None
                return self._token
        if self._left(token) < self._ahead_seconds and not self._fetching.locked():
            async with self._fetching:
                await self._renew(token)
        assert self._token is not None
        return self._token

    def reject(self, token: PoolToken) -> None:
        """Give a token that a pool refused to nobody any more."""
        if self._token is token:
            self._token = None

    async def _renew(self, token: PoolToken) -> None:
        """Replace a token that is still good; an identity that is away for a moment harms nobody yet."""
        if self._token is not token:
            return
        try:
            await self._fetch()
        except Exception:
            if self._left(token) <= 0:
                raise

    async def _fetch(self) -> None:
        with anyio.fail_after(_FETCH_SECONDS):
            self._token = await self._source.fetch()
        self.fetched += 1

    def _left(self, token: PoolToken) -> float:
        return token.expires_at - self._clock()
