"""The gateway: model calls of runners over HTTP, admitted by the token of their run and by nothing else (docs/decisions/0022).

It speaks the Messages API. A stream is passed on as it comes; where nothing of an answer has come for a while, it is begun with pings, so
that a slow model can be told from a dead connection. A failure after that is an `error` event, with the status it would have had.
"""

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from orchestration_service.answer_stream import AnswerStream
from orchestration_service.errors import GatewayRefusal, RequestTooLarge, TokenRefused
from orchestration_service.letters import ModelReply, ModelRequest
from orchestration_service.model_access import ModelAccess, RunAccess
from orchestration_service.routes.bodies import read_body
from workflow_schemas.mailbox import CALL_HEADER
from workflow_schemas.model_stream import encode_event, error_body, message_to_sse

_MESSAGES, _COUNT = "/v1/messages", "/v1/messages/count_tokens"
_HEADERS = ("anthropic-beta", "anthropic-version")
_MOST_BYTES = 32 * 1024 * 1024  # what the models' endpoints take
_UPLOAD_SECONDS = 60.0
_PING_SECONDS = 10.0
_STALL_SECONDS = 30.0
_ELSEWHERE_SECONDS = 1
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_Result = TypeVar("_Result")


def gateway_app(access: ModelAccess, *, ping_seconds: float = _PING_SECONDS, stall_seconds: float = _STALL_SECONDS) -> Starlette:
    """Return the application of the gateway.

    Args:
        access: Knows the runs.
        ping_seconds: How long nothing may come before it is said that the call is still being worked on.
        stall_seconds: How long a caller may take nothing of what is sent before it counts as gone.
    """

    async def look(request: Request) -> Response:
        access.admit(request.headers.getlist("authorization"))
        return Response(status_code=204)

    async def refuse(_: Request, error: Exception) -> Response:
        return _refused(error)

    gateway = _Gateway(access, ping_seconds=ping_seconds, stall_seconds=stall_seconds)
    return Starlette(
        routes=[Route("/", look, methods=["GET"]), *(Route(path, gateway, methods=["POST"]) for path in (_MESSAGES, _COUNT))],
        exception_handlers={GatewayRefusal: refuse, HTTPException: refuse},
    )


class _Gateway:
    def __init__(self, access: ModelAccess, *, ping_seconds: float, stall_seconds: float) -> None:
        self._access = access
        self._ping_seconds = ping_seconds
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        run = self._access.admit(request.headers.getlist("authorization"))
        async with run.at_once:
            try:
                async with asyncio.timeout(_UPLOAD_SECONDS):
                    body = await read_body(request, _MOST_BYTES)
            except (RequestTooLarge, TimeoutError) as error:
                await _refused(error)(scope, receive, send)
                return
            await self._answer(run, request, body, send)

    async def _answer(self, run: RunAccess, request: Request, body: bytes, send: Send) -> None:
        path = _COUNT if request.scope["path"].endswith(_COUNT) else _MESSAGES
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        call = ModelRequest(uuid.uuid4().hex, path, headers, body)
        wants_stream = path == _MESSAGES and await asyncio.to_thread(_wants_stream, body)  # bodies may be large
        stream = AnswerStream(passes=wants_stream)
        answer = _Answer(call, stream, run.begin(call, stream), send=send, stall_seconds=self._stall_seconds)
        gone = asyncio.create_task(_until_gone(request.receive))
        gone.add_done_callback(lambda _: stream.leave())
        try:
            await answer.give(self._ping_seconds, gone)
        except (OSError, TimeoutError):  # a caller that takes nothing counts as gone
            return
        finally:
            stream.leave()
            gone.cancel()


class _Answer:
    """One answer on its way to the caller."""

    def __init__(
        self, call: ModelRequest, stream: AnswerStream, task: "asyncio.Task[ModelReply]", *, send: Send, stall_seconds: float
    ) -> None:
        self._stream = stream
        self._task = task
        self._send = send
        self._stall_seconds = stall_seconds
        self._headers = {CALL_HEADER: call.call_id, "cache-control": "no-store"}
        self._begun = False

    async def give(self, ping_seconds: float, gone: "asyncio.Task[None]") -> None:
        """Send what comes, to the end or until the caller is gone.

        Raises:
            TimeoutError: The caller does not take it.
        """
        next_piece = asyncio.ensure_future(self._stream.piece())
        try:
            while True:
                if await _within(next_piece, ping_seconds) is None:
                    if self._stream.passes:
                        await self._pass(_PING)
                    continue
                if not next_piece.result():
                    break
                await self._pass(next_piece.result())
                next_piece = asyncio.ensure_future(self._stream.piece())
        finally:
            next_piece.cancel()
        await asyncio.wait({self._task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            return
        if (error := self._task.exception()) is None:
            await self._finish(self._task.result())
        elif self._begun:
            await self._break_off(ModelReply(503, error_body("api_error", str(error))))
        else:
            raise error

    async def _finish(self, reply: ModelReply) -> None:
        if not self._begun:
            await self._whole(reply)
        elif reply.status != 200:
            await self._break_off(reply)
        elif self._stream.is_out:
            await self._pass(encode_event({"type": "message_stop"}), last=True)
        else:
            await self._pass(b"".join(message_to_sse(reply.body)), last=True)

    async def _break_off(self, reply: ModelReply) -> None:
        after = {} if reply.retry_after is None else {"retry_after": reply.retry_after}
        await self._pass(encode_event({**reply.body, "type": "error", "status": reply.status, **after}), last=True)

    async def _whole(self, reply: ModelReply) -> None:
        """Send an answer of which nothing was sent yet."""
        if reply.status == 200 and self._stream.passes:
            await self._pass(b"".join(message_to_sse(reply.body)), last=True)
            return
        after = {} if reply.retry_after is None else {"retry-after": str(reply.retry_after)}
        response = JSONResponse(reply.body, status_code=reply.status, headers={**self._headers, **after})
        await self._start(reply.status, dict(response.headers))
        await self._pass(bytes(response.body), last=True)

    async def _pass(self, piece: bytes, *, last: bool = False) -> None:
        if not self._begun:
            await self._start(200, {**self._headers, "content-type": "text/event-stream", "x-accel-buffering": "no"})
        async with asyncio.timeout(self._stall_seconds):
            await self._send({"type": "http.response.body", "body": piece, "more_body": not last})

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self._begun = True
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})


async def _within(task: "asyncio.Future[_Result]", seconds: float) -> "asyncio.Future[_Result] | None":
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return task if done else None


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _wants_stream(body: bytes) -> bool:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False  # it is refused as every body that cannot be read
    return isinstance(asked, dict) and asked.get("stream") is True


def _refused(error: Exception) -> Response:
    """Return an error in the shape of the Messages API; only answers to calls carry the header of a call."""
    if isinstance(error, TokenRefused):
        headers = {"WWW-Authenticate": "Bearer"}
        return JSONResponse(error_body("authentication_error", str(error)), 401, headers)
    if isinstance(error, GatewayRefusal):
        return JSONResponse(error_body("overloaded_error", str(error)), 503, {"Retry-After": str(_ELSEWHERE_SECONDS)})
    if isinstance(error, RequestTooLarge):
        return JSONResponse(error_body("request_too_large", str(error)), 413, {"Connection": "close"})
    if isinstance(error, TimeoutError):
        return JSONResponse(error_body("timeout_error", "the request did not arrive in time"), 408, {"Connection": "close"})
    status = error.status_code if isinstance(error, HTTPException) else 500
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    return JSONResponse(error_body(kind, f"there are POST {_MESSAGES} and POST {_COUNT}"), status)
