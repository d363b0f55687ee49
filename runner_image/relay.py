"""The model endpoint inside the sandbox: the agent's CLI speaks HTTP to it, it speaks messages to the mailbox.

It listens on a Unix socket that only the agent's CLI can see. Two paths exist; everything else is answered with 404.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from runner_image.mailbox import Mailbox
from runner_image.places import Places
from runner_image.server.guard import ModelProtocol
from workflow_schemas.delta import MAX_BODY_BYTES, Bodies, compress, expand
from workflow_schemas.errors import DeltaError
from workflow_schemas.mailbox import Message
from workflow_schemas.model_stream import message_to_sse

_KEEP_ALIVE_SECONDS = 3600  # a close that crosses the agent's next request would cost it a repetition
_HEADERS = ("anthropic-beta", "anthropic-version")


@dataclass
class _Call:
    body: bytes
    path: str
    headers: dict[str, str]
    answer: "asyncio.Future[Message]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class AnswersCalls(Protocol):
    """Who answers the model calls of a run: the service through the mailbox, or an endpoint that is reached directly."""

    async def call(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any], float | None]:
        """Answer one request with an HTTP status, the message or error, and the seconds after which a retry makes sense, if known."""


@dataclass(frozen=True)
class DirectAnswer:
    """The beginning of an answer that did not come through the mailbox."""

    status: int
    """HTTP status for the CLI."""

    body: dict[str, Any] = field(default_factory=dict)
    """The error, where it is one."""

    retry_after: float | None = None
    """Seconds after which a retry makes sense, if known."""

    events: AsyncIterator[bytes] | None = None
    """The stream, where it is a message."""


class AnswersStreams(Protocol):
    """Who may answer a call while the answer comes."""

    async def ask(self, headers: dict[str, str], body: bytes) -> DirectAnswer | None:
        """Ask for a stream; None where that is not possible, and the call has to go the usual way."""


class ModelCalls:
    """The model calls of one run, as they go through its mailbox."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._bodies = Bodies()
        self._open: dict[str, _Call] = {}
        self._refusal: str | None = None

    async def call(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any], float | None]:
        """Send one request to the service and wait for its answer, however long that takes.

        Returns:
            HTTP status, the message or error as JSON, and the seconds after which a retry makes sense, if the service said so.
        """
        if self._refusal is not None:
            return 400, _error("invalid_request_error", self._refusal), None
        call_id = uuid.uuid4().hex
        self._open[call_id] = _Call(body, path, headers)
        try:
            await self._post(call_id, whole=False)
            answer = await self._open[call_id].answer
        finally:
            del self._open[call_id]
        retry_after = answer.body.get("retry_after")
        try:
            return int(answer.body["status"]), json.loads(expand(answer.data, body)), retry_after
        except DeltaError as error:
            return 502, _error("api_error", f"the answer did not arrive whole: {error}"), None

    async def take(self, message: Message) -> None:
        """Take a message of the service that concerns a model call; one for a call nobody waits for is dropped."""
        call = self._open.get(str(message.body.get("call_id")))
        if call is None:
            return
        if message.kind == "resend":
            await self._post(str(message.body["call_id"]), whole=True)
        elif not call.answer.done():
            call.answer.set_result(message)

    def refuse(self, reason: str) -> None:
        """Answer every open and later call with an error: the run is over."""
        self._refusal = reason
        for call_id, call in self._open.items():
            if not call.answer.done():
                body = {"call_id": call_id, "status": 400}
                data = compress(json.dumps(_error("invalid_request_error", reason)).encode(), call.body)
                call.answer.set_result(Message(seq=1, kind="model_answer", body=body, data=data))

    async def _post(self, call_id: str, *, whole: bool) -> None:
        call = self._open[call_id]
        base_name, base = ("", b"") if whole else self._bodies.closest(call.body)
        data = compress(call.body, base)
        name = self._bodies.add(call.body)
        about = {"call_id": call_id, "path": call.path, "headers": call.headers, "digest": name, "base": base_name}
        await self._mailbox.post("model_request", about, data)


class Relay:
    """The HTTP side; one run at a time is behind it."""

    def __init__(self) -> None:
        self.calls: AnswersCalls | None = None
        self.streams: AnswersStreams | None = None
        """Asked first where the CLI wants a stream."""
        self.ready: Callable[[], Awaitable[None]] | None = None
        """Awaited before an answer is passed on: the agent must not act before the workspace's first snapshot is taken."""

    def app(self) -> Starlette:
        """Return the ASGI application."""
        paths = ("/v1/messages", "/v1/messages/count_tokens")
        return Starlette(routes=[Route(path, self._endpoint, methods=["POST"]) for path in paths])

    async def _endpoint(self, request: Request) -> Response:
        calls = self.calls
        if calls is None:
            return JSONResponse(_error("invalid_request_error", "no run is active in this sandbox"), status_code=400)
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            words = f"the request has {len(body)} bytes and would not reach the model; at most {MAX_BODY_BYTES} bytes do"
            return JSONResponse(_error("request_too_large", words), status_code=413)
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        wants_stream = request.url.path == "/v1/messages" and _wants_stream(body)
        direct = await self.streams.ask(headers, body) if self.streams is not None and wants_stream else None
        if direct is None:
            status, answer, retry_after = await calls.call(request.url.path, headers, body)
            events: AsyncIterator[bytes] | Iterator[bytes] | None = message_to_sse(answer) if status == 200 and wants_stream else None
        else:
            status, answer, retry_after, events = direct.status, direct.body, direct.retry_after, direct.events
        if self.ready is not None:
            await self.ready()
        if events is not None:
            return StreamingResponse(events, media_type="text/event-stream")
        after = {"retry-after": str(retry_after)} if status != 200 and retry_after is not None else {}
        return JSONResponse(answer, status_code=status, headers=after)


class _Server(uvicorn.Server):
    """A server that leaves the signals to the program around it: they are to end the run, not only its model endpoint."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve_relay(relay: Relay, places: Places) -> AsyncIterator[None]:
    """Serve the relay on the model socket until the context ends."""
    places.model_socket.parent.mkdir(parents=True, exist_ok=True)
    places.model_socket.unlink(missing_ok=True)
    config = uvicorn.Config(
        relay.app(),
        http=ModelProtocol,
        uds=str(places.model_socket),
        log_level="warning",
        lifespan="off",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        server.force_exit = True
        await task


def _wants_stream(body: bytes) -> bool:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False  # whoever answers refuses it
    return isinstance(asked, dict) and bool(asked.get("stream"))


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}
