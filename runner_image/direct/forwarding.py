"""Carries the agent's model calls from the relay to a real endpoint, with the key put on here, outside the wall.

It asks again a few times, because the CLI is told not to: inside the wall it cannot know what is worth another try.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from runner_image.direct.endpoint import WHAT_TO_SET, ModelEndpoint
from runner_image.direct.errors import EndpointUnusable
from workflow_schemas.model_stream import MessageAssembler, ModelStreamError, SseParser, StreamedError, error_body

_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_TRIES = 4
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_NO_MODEL = 501  # a web page or a redirect: asking again would bring the same
_LONGEST_WAIT_SECONDS = 30.0
_PROBE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class ForwardingLimits:
    """How patient the forwarding is, in seconds."""

    connect_seconds: float = 10.0
    """Until a connection stands."""

    silence_seconds: float = 300.0
    """Between two pieces of an answer."""

    call_seconds: float = 900.0
    """For one call of the CLI, all tries together."""

    first_wait_seconds: float = 1.0
    """Before the second try; doubled for each further one, unless the endpoint says how long."""


@dataclass(frozen=True)
class _Answer:
    status: int
    body: dict[str, Any]
    retry_after: float | None = None


class ForwardedCalls:
    """Answers the relay's calls from a real endpoint."""

    def __init__(self, client: httpx.AsyncClient, limits: ForwardingLimits) -> None:
        self._client = client
        self._limits = limits
        self._open: set[asyncio.Task[_Answer]] = set()
        self._ended = False

    async def call(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any], float | None]:
        """Send one request on; whatever goes wrong comes back as an error of the Messages API, never as an exception."""
        answer = _Answer(400, error_body("invalid_request_error", "the agent's work has ended"))
        if not self._ended:
            task = asyncio.create_task(self._forward(path, headers, body))
            self._open.add(task)
            try:
                await asyncio.wait([task])
            finally:
                task.cancel()
                self._open.discard(task)
            if not task.cancelled():
                answer = task.result()
        return answer.status, answer.body, answer.retry_after

    def end(self) -> None:
        """Break off open calls and refuse later ones: nobody waits for their answers any more, and they cost money."""
        self._ended = True
        for task in self._open:
            task.cancel()

    async def probe(self) -> None:
        """Find out whether anybody listens; no key is used.

        Raises:
            EndpointUnusable: Nobody does.
        """
        try:
            request = self._client.build_request("GET", "", timeout=_PROBE_SECONDS)
            for name in ("x-api-key", "authorization"):
                request.headers.pop(name, None)
            response = await self._client.send(request, stream=True)
            await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EndpointUnusable(
                f"The model endpoint cannot be reached: {_words(error)}. {WHAT_TO_SET} "
                "A sandbox without network cannot reach any: there the service carries the model calls."
            ) from error

    async def _forward(self, path: str, headers: dict[str, str], body: bytes) -> _Answer:
        answer = _Answer(504, error_body("timeout_error", f"the model gave no answer within {self._limits.call_seconds:.0f} s"))
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                for number in range(_TRIES):
                    answer = await self._try(path, headers, body)
                    if answer.status not in _WORTH_ANOTHER_TRY or number == _TRIES - 1:
                        break
                    await asyncio.sleep(self._wait_seconds(answer, number))
        except TimeoutError:
            pass  # the last answer, or that there was none, is what the agent is told
        return answer

    async def _try(self, path: str, headers: dict[str, str], body: bytes) -> _Answer:
        try:
            sent = {**headers, "content-type": "application/json"}
            async with self._client.stream("POST", path.lstrip("/"), headers=sent, content=body) as response:
                if response.status_code == 200 and "text/event-stream" in response.headers.get("content-type", ""):
                    return _Answer(200, await _assembled(response))
                return _judged(response, await _whole(response))
        except StreamedError as error:
            overloaded = error.error.get("type") == "overloaded_error"
            return _Answer(529 if overloaded else 502, {"type": "error", "error": error.error})
        except (httpx.HTTPError, httpx.InvalidURL, ModelStreamError) as error:
            return _Answer(502, error_body("api_error", f"the model endpoint did not answer: {_words(error)}"))

    def _wait_seconds(self, answer: _Answer, number: int) -> float:
        wait = (
            answer.retry_after if answer.retry_after is not None else self._limits.first_wait_seconds * 2**number * random.uniform(1, 1.3)
        )
        return min(wait, _LONGEST_WAIT_SECONDS)


@asynccontextmanager
async def forward_to(endpoint: ModelEndpoint, limits: ForwardingLimits | None = None) -> AsyncIterator[ForwardedCalls]:
    """Open the way to an endpoint until the context ends."""
    chosen = limits or ForwardingLimits()
    transport = httpx.AsyncHTTPTransport(uds=str(endpoint.unix_socket)) if endpoint.unix_socket else None
    timeout = httpx.Timeout(chosen.silence_seconds, connect=chosen.connect_seconds)
    async with httpx.AsyncClient(
        base_url=f"{endpoint.base_url}/",
        headers=dict(endpoint.headers),
        transport=transport,
        timeout=timeout,
        follow_redirects=False,  # the key is for this host
        trust_env=transport is None,  # a proxy of the environment would take the place of the socket
    ) as client:
        calls = ForwardedCalls(client, chosen)
        try:
            yield calls
        finally:
            calls.end()


async def _assembled(response: httpx.Response) -> dict[str, Any]:
    parser, assembler = SseParser(), MessageAssembler()
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            raise ModelStreamError(f"it is longer than {_MAX_ANSWER_BYTES} bytes")
        for event in parser.feed(chunk):
            assembler.feed(event)
        if assembler.complete:
            break
    return assembler.message()


async def _whole(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _MAX_ANSWER_BYTES:
            raise ModelStreamError(f"it is longer than {_MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _judged(response: httpx.Response, data: bytes) -> _Answer:
    """Tell a model's answer from that of another kind of server."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    status = response.status_code
    if isinstance(body, dict) and (status == 200 or (status >= 400 and isinstance(body.get("error"), dict))):
        return _Answer(status, body, _retry_after(response))
    said = f"the model endpoint answered with status {status} and no message of the Messages API; check ANTHROPIC_BASE_URL"
    return _Answer(status if status >= 400 else _NO_MODEL, error_body("api_error", said), _retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= 3600 else None


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
