"""Asks over HTTP and keeps what matters of an answer; what cannot be asked becomes a missing fact."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx

from orchestration_service.deploying.errors import DeploymentError
from orchestration_service.examining.facts import Answer, Missing

T = TypeVar("T")

FACT_SECONDS = 30.0
"""How long one fact may take, tries included."""
REQUEST_SECONDS = 10.0
"""How long one request of ours may take."""
MOST_AT_ONCE = 12
"""How much is asked at the same time."""
_KEPT_CHARACTERS = 64 * 1024


class Asking:
    """Asks for facts, some at a time, each for a limited time."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def fact(self, what: str, asked: Awaitable[T], *, fix: str) -> T | Missing:
        """Return what is asked for, or that it could not be had.

        Args:
            what: What it is, in words.
            asked: Gets it.
            fix: What to do if it cannot be had.
        """
        try:
            async with self._slots, asyncio.timeout(FACT_SECONDS):
                return await asked
        except TimeoutError:
            return Missing(what, f"There was no answer within {FACT_SECONDS:g} seconds.", fix)
        except DeploymentError as error:
            return Missing(what, str(error), fix)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Missing(what, f"There was no answer ({str(error) or type(error).__name__}).", fix)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a GET and return the answer, whatever its status.

        Raises:
            httpx.HTTPError: There was none.
        """
        answer = await self._client.get(url, headers={"Connection": "close", **(headers or {})})  # a connection each: a replica each
        return Answer(answer.status_code, answer.text[:_KEPT_CHARACTERS], _ahead(answer))


@asynccontextmanager
async def open_asking(trusted: str | bool) -> AsyncIterator[Asking]:
    """Open it.

    Args:
        trusted: File with the certificates to trust, where it is not the machine's.
    """
    context = await asyncio.to_thread(ssl.create_default_context, cafile=trusted if isinstance(trusted, str) else None)  # reads files
    async with httpx.AsyncClient(timeout=REQUEST_SECONDS, verify=context, follow_redirects=False) as client:
        yield Asking(client)


def _ahead(answer: httpx.Response) -> float | None:
    """By how much the clock there is ahead; it tells whole seconds, so this is right to a second and the way of the answer."""
    try:
        told = parsedate_to_datetime(answer.headers["Date"])
    except (KeyError, ValueError):
        return None
    return (told - datetime.now(UTC)).total_seconds() if told.tzinfo else None
