"""Answers whose end is told: a request is under way until its answer is read or closed, and providers count such requests."""

from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx


def counted(response: httpx.Response, done: Callable[[], None]) -> httpx.Response:
    """Give the same answer, still to be read, and say once when it is closed.

    Args:
        response: An answer straight from a transport.
        done: Called at its end.
    """
    stream = _CountedStream(cast(httpx.AsyncByteStream, response.stream), done)
    return httpx.Response(response.status_code, headers=response.headers, stream=stream, extensions=response.extensions)


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
