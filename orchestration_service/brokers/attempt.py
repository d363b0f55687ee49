"""One attempt at a model call: send, read to the end, and say what came without judging it."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import anyio
import httpx

from orchestration_service.brokers.call import DeltaListener, EventListener, JsonObject, delta_of
from orchestration_service.brokers.errors import EmptyStream, NotAModel, StreamCut, StreamStalled, UpstreamFault
from orchestration_service.brokers.request import UpstreamRequest
from orchestration_service.brokers.route import ModelRoute
from workflow_schemas.model_stream import MalformedStream, MessageAssembler, ModelStreamError, SseParser

_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 256 * 1024
_DRAIN_SECONDS = 0.5
_PROOFS = ("authorization", "x-api-key", "api-key", "x-amz-security-token")


class Sender(Protocol):
    """What sends requests: the clients, which import too much to be imported here."""

    async def send(self, route: ModelRoute, request: UpstreamRequest, timeout: httpx.Timeout) -> httpx.Response:
        """Send a request and give its answer unread."""
        ...


class Parser(Protocol):
    """What turns a stream's bytes into events."""

    def feed(self, chunk: bytes) -> list[JsonObject]:
        """Take the next bytes and give the events they complete."""
        ...


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
    proofs: tuple[str, ...] = field(default=(), repr=False)
    """Keys and tokens that were sent; an upstream may repeat them."""
    on_event: EventListener | None = None
    """Takes the events of the stream."""


async def run_attempt(
    sender: Sender,
    route: ModelRoute,
    request: UpstreamRequest,
    timeout: httpx.Timeout,
    attempt: Attempt,
    on_delta: DeltaListener | None,
) -> None:
    """Send a request and read its answer; whatever the upstream does wrong is noted in the attempt, not raised.

    The attempt is filled while the answer comes, so that the caller has what is known also if it cancels.
    """
    try:
        async with contextlib.aclosing(await sender.send(route, request, timeout)) as response:
            attempt.status = response.status_code
            attempt.headers = {name.lower(): value for name, value in response.headers.items()}
            attempt.proofs = tuple(
                response.request.headers[name].rpartition(" ")[2] for name in _PROOFS if name in response.request.headers
            )
            parser = _parser(route, response) if request.streams else None
            if response.status_code != 200:
                attempt.body = _json(await _read(response, attempt, _MAX_ERROR_BYTES))
            elif parser is not None:
                await _read_stream(response, parser, attempt, on_delta)
            else:
                _take_whole(await _read(response, attempt, _MAX_ANSWER_BYTES), request, attempt)
    except httpx.ReadTimeout as error:
        attempt.exception = error if attempt.first_byte_seconds is None else StreamStalled(str(error))
    except (httpx.HTTPError, httpx.InvalidURL, ModelStreamError, UpstreamFault) as error:
        attempt.exception = error


def _parser(route: ModelRoute, response: httpx.Response) -> Parser | None:
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind == "application/vnd.amazon.eventstream" and route.provider == "bedrock":
        from orchestration_service.brokers.aws_frames import AwsFrames  # needs an extra, which such a route has

        return AwsFrames()
    return SseParser() if kind == "text/event-stream" else None


async def _read_stream(response: httpx.Response, parser: Parser, attempt: Attempt, on_delta: DeltaListener | None) -> None:
    assembler = MessageAssembler()
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
                if attempt.on_event is not None:
                    attempt.on_event.take(event)
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
    if "inputTokens" in answer:  # Bedrock's way to say it
        answer = {"input_tokens": answer["inputTokens"]}
    fits = answer.get("type") == "message" if request.streams else isinstance(answer.get("input_tokens"), int)
    if not fits:
        raise NotAModel(f"an answer of type {attempt.headers.get('content-type')!r} is no answer of a model")
    attempt.message, attempt.usage = answer, answer.get("usage")


def _json(body: bytes) -> JsonObject:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and len(value) == 1:  # Google wraps the error of a stream so
        value = value[0]
    return value if isinstance(value, dict) else {}


def _note_first_byte(attempt: Attempt) -> None:
    if attempt.first_byte_seconds is None:
        attempt.first_byte_seconds = monotonic() - attempt.started
