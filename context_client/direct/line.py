"""The way to a sandbox's `POST /code/execute`: one execution, what it printed, and every fault on the way as one of ours."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import httpx
from pydantic import SecretStr

from context_client.direct.errors import (
    BadAnswer,
    DirectError,
    ExecutionFailed,
    NoSuchPlace,
    NotLetIn,
    NotOurImage,
    PoolFault,
    PoolFull,
    Unreachable,
)
from context_client.direct.programs import shown
from context_client.embedded.provider import SandboxEndpoint, SandboxProvider
from context_client.size import SandboxSize

_MAX_ANSWER_BYTES = 32 * 1024 * 1024
_MARGIN_SECONDS = 15.0
_LONGEST_RETRY_AFTER = 300.0
_MISSING = "No module named 'runner_image"
_WORTH_ANOTHER_TRY = (Unreachable, PoolFull, PoolFault, ExecutionFailed)


class TokenSource(Protocol):
    """Gives the bearer token of a pool."""

    async def token(self, *, refresh: bool) -> str:
        """Return a token for the next call.

        Args:
            refresh: True when the one given last was just refused.
        """
        ...


@dataclass(frozen=True)
class FixedToken:
    """A token somebody fetched before; good for an hour, and for tests."""

    value: SecretStr
    """The token."""

    async def token(self, *, refresh: bool) -> str:
        """Return it; there is no other."""
        return self.value.get_secret_value()


@dataclass(frozen=True)
class OneEndpoint:
    """A `SandboxProvider` with the same endpoint for all: a pool tells its sandboxes apart by the identifier."""

    only: SandboxEndpoint
    """The endpoint."""

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        """Return it."""
        return self.only


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to go on asking while the other side is at fault, in seconds."""

    all_seconds: float = 60.0
    """From the first fault in a row to giving up."""

    first_seconds: float = 0.2
    """Before the second try; doubled for each further one, unless the pool says how long."""

    longest_seconds: float = 10.0
    """Between two tries."""


@dataclass
class _Open:
    endpoint: SandboxEndpoint
    http: httpx.AsyncClient


class Lines:
    """Executes code in the sandboxes of a provider, over connections that are kept; close it with `close`."""

    def __init__(self, provider: SandboxProvider, *, upn: str, token: TokenSource | None, patience: Patience) -> None:
        self._provider = provider
        self._upn = upn
        self._token = token
        self._patience = patience
        self._open: dict[str, _Open] = {}

    async def ask(self, session_id: str, code: str, wait_seconds: float) -> str:
        """Execute code that may be executed twice, as often as patience allows; return what it printed.

        Args:
            session_id: Identifier of the sandbox.
            code: What to execute.
            wait_seconds: How long the code itself may wait.

        Raises:
            DirectError: Of the kind the fault stands for.
        """
        pause, deadline = self._patience.first_seconds, time.monotonic() + self._patience.all_seconds
        while True:
            try:
                return await self._execute(session_id, code, wait_seconds)
            except _WORTH_ANOTHER_TRY as error:
                asked = error.retry_after_seconds if isinstance(error, PoolFull) else None
                seconds = asked if asked is not None else pause
                if time.monotonic() + seconds > deadline:
                    raise
            await anyio.sleep(seconds)
            pause = min(pause * 2, self._patience.longest_seconds)

    async def close(self) -> None:
        """Close all connections."""
        while self._open:
            _, opened = self._open.popitem()
            await opened.http.aclose()

    async def _execute(self, session_id: str, code: str, wait_seconds: float) -> str:
        opened = await self._line(session_id)
        params = {"identifier": session_id} | dict(opened.endpoint.params)
        url = httpx.URL(opened.endpoint.base_url.rstrip("/") + "/code/execute", params=params)
        seconds = min(opened.endpoint.timeout_seconds, wait_seconds + _MARGIN_SECONDS)
        for refresh in (False, True):
            headers = {"Authorization": f"Bearer {await self._token.token(refresh=refresh)}"} if self._token else {}
            async with _translated(seconds):
                request = opened.http.build_request("POST", url, json={"code": code}, headers=headers)
                response = await opened.http.send(request, stream=True)
                try:
                    body = await _bounded(response)
                finally:
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
            if response.status_code != 401 or self._token is None:
                break
        _judge_status(response, body)
        return _printed(body)

    async def _line(self, session_id: str) -> _Open:
        key = "" if isinstance(self._provider, OneEndpoint) else session_id
        try:
            endpoint = await self._provider.endpoint(session_id=session_id, upn=self._upn)
        except DirectError:
            raise
        except Exception as error:  # providers are strangers and may raise anything; ours is the one tree that callers know
            raise Unreachable(f"The sandbox could not be had: {type(error).__name__}: {error}") from error
        known = self._open.get(key)
        if known is not None and (known.endpoint is endpoint or known.endpoint == endpoint):
            return known
        http = httpx.AsyncClient(
            transport=endpoint.transport,
            headers={"Accept-Encoding": "identity"} | dict(endpoint.headers),
            timeout=httpx.Timeout(endpoint.timeout_seconds),
            trust_env=False,
        )
        opened = self._open[key] = _Open(endpoint, http)
        if known is not None:
            await known.http.aclose()
        return opened


@asynccontextmanager
async def _translated(seconds: float) -> AsyncIterator[None]:
    """Turn the transport's errors into ours, and bound the time."""
    try:
        with anyio.fail_after(seconds):
            yield
    except (TimeoutError, httpx.TimeoutException) as error:
        raise Unreachable(f"The sandbox gave no answer within {seconds:g} seconds.") from error
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, RuntimeError) as error:
        # RuntimeError: the client was closed, because the sandbox was replaced while this was asked
        raise Unreachable(f"The sandbox cannot be reached: {type(error).__name__}: {error}") from error


async def _bounded(response: httpx.Response) -> bytes:
    pieces, size = [], 0
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > _MAX_ANSWER_BYTES:
            raise BadAnswer(f"The sandbox's answer is longer than {_MAX_ANSWER_BYTES} bytes.")
        pieces.append(piece)
    return b"".join(pieces)


def _judge_status(response: httpx.Response, body: bytes) -> None:
    status, said = response.status_code, shown(body[:2000].decode("utf-8", "replace").strip())
    if response.is_success:
        return
    if status in (401, 403):
        raise NotLetIn(f"The pool refuses the call with status {status}; check the token's audience and the caller's role. It says: {said}")
    if status in (404, 405):
        raise NoSuchPlace(f"Nothing executes code at this address (status {status}); check the pool's endpoint. It says: {said}")
    if status == 429:
        raise PoolFull(f"The pool has no sandbox to give. It says: {said}", retry_after_seconds=_retry_after(response))
    raise PoolFault(f"The pool answered with status {status}. It says: {said}", status=status)


def _retry_after(response: httpx.Response) -> float | None:
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _LONGEST_RETRY_AFTER else None


def _printed(body: bytes) -> str:
    """Return what the code printed, or say why it did not come to that."""
    try:
        answer: Any = json.loads(body)
        output, error = answer["detail"]["output"], answer["detail"]["error"]
    except (ValueError, KeyError, TypeError, RecursionError) as odd:
        said = shown(body[:2000].decode("utf-8", "replace"))
        raise BadAnswer(f"The answer is not that of a sandbox's server: {said!r}. Check the address.") from odd
    if not isinstance(output, str) or not isinstance(error, str):
        raise BadAnswer("The answer of the sandbox's server has no text in 'output' and 'error'.")
    if _MISSING in error:
        raise NotOurImage("The sandbox has no direct path in it; give the pool the runner's image.")
    if error.strip():
        raise ExecutionFailed(f"The sandbox could not execute what was sent: {shown(error.strip(), 1000)}")
    return output
