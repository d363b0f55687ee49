"""One attempt at a model call: send, read to the end, and say what came without judging it."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio
import httpx

from orchestration_service.brokers.call import DeltaListener, JsonObject, delta_of
from orchestration_service.brokers.errors import EmptyStream, NotAModel, StreamCut, StreamStalled, UpstreamFault
from orchestration_service.brokers.request import UpstreamRequest
from workflow_schemas.model_stream import MalformedStream, MessageAssembler, ModelStreamError, SseParser

_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 256 * 1024
_DRAIN_SECONDS = 0.5


@dataclass
class Attempt:
    """What one attempt brought."""

    started: float = field(default_factory=monotonic)
    """When it began, on the monotonic clock."""
    status: int | None = None
    """HTTP status, if an answer began."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of the answer, names in lower case."""
    body: Any = None
    """JSON body of an answer that was no 200."""
    message: JsonObject | None = None
    """The whole message, or the count of tokens."""
    usage: object = None
    """Usage as far as it was reported."""
    exception: Exception | None = None
    """What broke the attempt."""
    first_byte_seconds: float | None = None
    """Time until the first byte of the body."""
    problems: tuple[str, ...] = ()
    """What was odd about the message."""


async def run_attempt(
    client: httpx.AsyncClient,
    request: UpstreamRequest,
    timeout: httpx.Timeout,
    attempt: Attempt,
    on_delta: DeltaListener | None,
) -> None:
    """Send a request and read its answer; whatever the upstream does wrong is noted in the attempt, not raised.

    The attempt is filled while the answer comes, so that the caller has what is known also if it cancels.
    """
    try:
        async with client.stream("POST", request.url, headers=request.headers, content=request.content, timeout=timeout) as response:
            attempt.status = response.status_code
            attempt.headers = {name.lower(): value for name, value in response.headers.items()}
            if response.status_code != 200:
                attempt.body = _json(await _read(response, attempt, _MAX_ERROR_BYTES))
            elif request.streams and _media_type(response) == "text/event-stream":
                await _read_stream(response, attempt, on_delta)
            else:
                _take_whole(await _read(response, attempt, _MAX_ANSWER_BYTES), request, attempt)
    except httpx.ReadTimeout as error:
        attempt.exception = error if attempt.first_byte_seconds is None else StreamStalled(str(error))
    except (httpx.HTTPError, httpx.InvalidURL, ModelStreamError, UpstreamFault) as error:
        attempt.exception = error


async def _read_stream(response: httpx.Response, attempt: Attempt, on_delta: DeltaListener | None) -> None:
    parser, assembler = SseParser(), MessageAssembler()
    size = events = 0
    chunks = response.aiter_bytes()
    try:
        async for chunk in chunks:
            _note_first_byte(attempt)
            size += len(chunk)
            if size > _MAX_ANSWER_BYTES:
                raise MalformedStream(f"the stream is longer than {_MAX_ANSWER_BYTES} bytes")
            for event in parser.feed(chunk):
                events += 1
                assembler.feed(event)
                if on_delta is not None and (delta := delta_of(event)) is not None:
                    on_delta(delta)
            if assembler.complete:
                break
    finally:
        attempt.usage = assembler.usage
    if not events:
        raise EmptyStream("the stream ended without an event")
    if not assembler.complete:
        raise StreamCut("the stream ended before message_stop")
    attempt.message, attempt.problems = assembler.message(), assembler.problems
    await _drain(chunks)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left so that the connection can be used again; the message is whole, so nothing here matters."""
    with anyio.move_on_after(_DRAIN_SECONDS), contextlib.suppress(httpx.HTTPError):
        async for _ in chunks:
            pass


async def _read(response: httpx.Response, attempt: Attempt, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        _note_first_byte(attempt)
        body += chunk
        if len(body) > limit:
            break
    return bytes(body[:limit])


def _take_whole(body: bytes, request: UpstreamRequest, attempt: Attempt) -> None:
    """Take an answer in one piece: a count of tokens, or a message from a gateway that does not stream."""
    if not body:
        raise EmptyStream("the answer has no body")
    answer = _json(body)
    fits = answer.get("type") == "message" if request.streams else isinstance(answer.get("input_tokens"), int)
    if not fits:
        raise NotAModel(f"an answer of type {attempt.headers.get('content-type')!r} is no answer of a model")
    attempt.message, attempt.usage = answer, answer.get("usage")


def _json(body: bytes) -> JsonObject:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _note_first_byte(attempt: Attempt) -> None:
    if attempt.first_byte_seconds is None:
        attempt.first_byte_seconds = monotonic() - attempt.started
