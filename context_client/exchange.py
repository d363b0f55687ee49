"""One HTTP call and its translation: httpx's errors become ours here and nowhere else."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx

from context_client.errors import InvalidRequest, ProtocolError, Unavailable
from context_client.judge import Purpose, judge

# Before the second and the third try of a GET that could not connect: a server that restarts is back by then.
_PAUSES_SECONDS = (0.1, 0.5)
_NEVER_ARRIVED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request, as the caller of the API thinks of it."""

    method: str
    """HTTP method."""

    path: str
    """Path below the base URL, segments already escaped."""

    headers: Mapping[str, str]
    """Headers besides the client's own."""

    body: Mapping[str, Any]
    """Keyword arguments of httpx that carry the body: `json` or `content`, and `params`."""

    purpose: Purpose = "lookup"
    """For `judge`, should it fail."""

    timeout_seconds: float | None = None
    """Longest wait for the answer; None takes the client's."""


async def send(http: httpx.AsyncClient, call: Call) -> httpx.Response:
    """Send a call and give back its successful answer, read to the end.

    Only a GET that could not connect is tried again; everything else may already have been done once.

    Raises:
        ContextApiError: Of the kind the failure stands for.
    """
    pauses = list(_PAUSES_SECONDS) if call.method == "GET" else []
    while True:
        try:
            response = await _send_once(http, call)
            break
        except Unavailable as error:
            if not pauses or error.may_have_arrived:
                raise
        await anyio.sleep(pauses.pop(0))
    # A DELETE that failed says so under status 200; no other success may be searched for errors.
    if not response.is_success or call.method == "DELETE":
        content_type = response.headers.get("content-type", "")
        verdict = judge(response.status_code, content_type, response.content, purpose=call.purpose)
        if verdict is not None:
            raise verdict
    return response


async def _send_once(http: httpx.AsyncClient, call: Call) -> httpx.Response:
    timeout = http.timeout
    if call.timeout_seconds is not None:
        timeout = httpx.Timeout(call.timeout_seconds, connect=http.timeout.connect, pool=http.timeout.pool)
    async with translated(call.method, call.path):
        return await http.request(call.method, call.path, headers=call.headers, timeout=timeout, **call.body)


@asynccontextmanager
async def translated(method: str, path: str) -> AsyncIterator[None]:
    """Turn the transport's errors into ours, the original kept as cause."""
    try:
        yield
    except (httpx.DecodingError, httpx.TooManyRedirects, httpx.InvalidURL) as error:
        raise ProtocolError(f"{method} {path!r} got an unreadable answer", detail=str(error)) from error
    except UnicodeEncodeError as error:
        raise InvalidRequest("nothing was sent", detail=f"the call holds text that is not valid: {error}") from error
    except httpx.TransportError as error:
        arrived = not isinstance(error, _NEVER_ARRIVED)
        raise Unavailable(f"{method} {path!r} got no answer from the Context API", cause=error, may_have_arrived=arrived) from error
