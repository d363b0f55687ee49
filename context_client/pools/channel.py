"""One request to one pool: addressed, with a token, and its answer judged."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx

from context_client.pools.errors import PoolRefused
from context_client.pools.judge import SUSPICIOUS, Verdict, error_code, judge, retry_after
from context_client.pools.settings import SessionPool
from context_client.pools.tokens import CachedTokens, PoolToken

_LOOKED_AT_BYTES = 64 * 1024
_SAID_CHARACTERS = 200
_NOTABLE_SKEW_SECONDS = 60


@dataclass(frozen=True)
class Heard:
    """An answer and whose it is."""

    response: httpx.Response
    """The answer, still to be read and closed."""

    verdict: Verdict
    """Whose answer it is."""

    said: str
    """For a message: status and words of the pool; hostile text."""

    pause: float | None
    """How long the pool wants to be left alone."""


class PoolChannel:
    """Sends requests to pools."""

    def __init__(self, *, tokens: CachedTokens, connect_seconds: float) -> None:
        self._tokens = tokens
        self._connect_seconds = connect_seconds

    async def send(self, wire: httpx.AsyncBaseTransport, pool: SessionPool, request: httpx.Request, *, has_slot: bool) -> Heard:
        """Send a request to a pool; a refused token is replaced once.

        Args:
            wire: Carries the bytes.
            pool: Who to ask.
            request: With a path as the container knows it; the rest is filled in here.
            has_slot: Whether the session must have a slot there.

        Raises:
            httpx.TransportError: There was no answer.
            PoolRefused: There is no token to be had.
        """
        token = await self._token(pool)
        response = await wire.handle_async_request(self._addressed(pool, request, token))
        if response.status_code == 401:
            if not is_repeatable(request):
                self._tokens.reject(token)  # its caller has to repeat it, and will get a fresh one
                return Heard(response, "answer", "", None)
            await response.aclose()
            fresh = await self._token(pool, rejected=token)
            response = await wire.handle_async_request(self._addressed(pool, request, fresh))
        if response.status_code not in SUSPICIOUS:
            return Heard(response, "answer", "", None)
        response, body = await _looked_at(response)
        verdict = judge(response.status_code, response.headers, body, has_slot=has_slot)
        said = _words(response, body)
        return Heard(response, verdict, said, retry_after(response.headers))

    async def _token(self, pool: SessionPool, rejected: PoolToken | None = None) -> PoolToken:
        try:
            return await self._tokens.get(rejected=rejected)
        except Exception as error:
            # Credentials of every kind raise what they like; to the line it is one thing: we are not let in.
            raise PoolRefused(f"{pool.name!r}: no token could be had: {type(error).__name__}: {str(error)[:500]}") from error

    def _addressed(self, pool: SessionPool, request: httpx.Request, token: PoolToken) -> httpx.Request:
        base = httpx.URL(pool.endpoint)
        url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + request.url.raw_path)
        headers = request.headers.copy()
        headers["Host"] = url.netloc.decode("ascii")
        headers["Authorization"] = f"Bearer {token.value}"
        timeout: Mapping[str, float | None] = request.extensions.get("timeout", {})
        extensions = dict(request.extensions) | {"timeout": dict(timeout) | {"connect": self._connect_seconds}}
        return httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=extensions)


def is_repeatable(request: httpx.Request) -> bool:
    """Whether the body can be sent again: it is held in memory, not drawn from somewhere."""
    return isinstance(request.stream, httpx.ByteStream)


async def health_said(response: httpx.Response) -> Mapping[str, Any]:
    """Read what a sandbox says about itself, and close the answer; nothing where that makes no sense."""
    stream = cast(httpx.AsyncByteStream, response.stream)
    read = b""
    try:
        async for chunk in stream:
            read += chunk
            if len(read) > _LOOKED_AT_BYTES:
                return {}
        said = json.loads(read) if response.status_code == 200 else {}
    except (ValueError, RecursionError):
        return {}
    finally:
        await stream.aclose()
    return said if isinstance(said, dict) else {}


class Chained(httpx.AsyncByteStream):
    """A body whose beginning was already read."""

    def __init__(self, read: bytes, rest: httpx.AsyncByteStream | None) -> None:
        self._read = read
        self._rest = rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._read:
            yield self._read
        if self._rest is not None:
            async for chunk in self._rest:
                yield chunk

    async def aclose(self) -> None:
        """Close the rest."""
        if self._rest is not None:
            await self._rest.aclose()


async def _looked_at(response: httpx.Response) -> tuple[httpx.Response, bytes]:
    """Read the beginning of a body, and give an answer that still has all of it."""
    stream = cast(httpx.AsyncByteStream, response.stream)
    chunks = aiter(stream)
    read = b""
    rest: _Rest | None = _Rest(chunks, stream)
    async for chunk in chunks:
        read += chunk
        if len(read) >= _LOOKED_AT_BYTES:
            break
    else:
        await stream.aclose()
        rest = None
    whole = Chained(read, rest)
    return httpx.Response(response.status_code, headers=response.headers, stream=whole, extensions=response.extensions), read


class _Rest(httpx.AsyncByteStream):
    """What is left of a body."""

    def __init__(self, chunks: AsyncIterator[bytes], stream: httpx.AsyncByteStream) -> None:
        self._chunks = chunks
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        await self._stream.aclose()


def _words(response: httpx.Response, body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    said = f"HTTP {response.status_code} {(error_code(response.headers, body) or text)[:_SAID_CHARACTERS]!r}"
    if response.status_code == 401:
        said += _skew(response.headers.get("date"))
    return said


def _skew(date: str | None) -> str:
    """Compare clocks: a token is refused by one that is wrong, and nothing else would tell."""
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError):
        return ""
    ahead = theirs - time.time()
    if abs(ahead) < _NOTABLE_SKEW_SECONDS:
        return ""
    return f" (the pool's clock is {abs(ahead):.0f} seconds {'ahead of' if ahead > 0 else 'behind'} ours: one of them is wrong)"
