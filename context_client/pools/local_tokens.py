"""Tokens like Entra's for the emulator: the same claims, signed with a key that both ends share.

Real tokens are signed by Entra; whoever checks those needs its public keys and a network. The emulator has neither.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from context_client.pools.tokens import AUDIENCE, PoolToken

_HEADER: Mapping[str, str] = {"alg": "HS256", "typ": "JWT"}
_LIFETIME_SECONDS = 3600.0
_LEEWAY_SECONDS = 300.0  # what Microsoft's own validators grant


class LocalTokens:
    """A token source that signs its own."""

    def __init__(
        self,
        key: bytes,
        *,
        audience: str = AUDIENCE,
        lifetime_seconds: float = _LIFETIME_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key
        self._audience = audience
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock

    async def fetch(self) -> PoolToken:
        """Sign one."""
        now = self._clock()
        claims = {"aud": self._audience, "iat": now, "nbf": now, "exp": now + self._lifetime_seconds, "oid": "local"}
        return PoolToken(value=sign(self._key, claims), expires_at=now + self._lifetime_seconds)


def sign(key: bytes, claims: dict[str, Any]) -> str:
    """Make a signed token of claims."""
    head = ".".join(_encode(json.dumps(part).encode()) for part in (_HEADER, claims))
    return f"{head}.{_encode(_signature(key, head))}"


def token_problem(key: bytes, token: str, *, audience: str, now: float, leeway_seconds: float = _LEEWAY_SECONDS) -> str | None:
    """Say what is wrong with a token, or None.

    Args:
        key: The key it must be signed with.
        token: Hostile text.
        audience: What it must be made for.
        now: Seconds since 1970 by the checker's clock.
        leeway_seconds: How far the two clocks may differ.
    """
    head, _, signature = token.rpartition(".")
    try:
        if not hmac.compare_digest(_decode(signature), _signature(key, head)):
            return "its signature is not right"
        claims = json.loads(_decode(head.partition(".")[2]))
        given, not_before, expires = claims["aud"], float(claims["nbf"]), float(claims["exp"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it is not a token"
    if given.rstrip("/") != audience if isinstance(given, str) else True:
        return f"its audience is not {audience!r}"
    if now > expires + leeway_seconds:
        return "it has expired"
    return "it is not valid yet" if now < not_before - leeway_seconds else None


def _signature(key: bytes, head: str) -> bytes:
    return hmac.new(key, head.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def _decode(value: str) -> bytes:
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
