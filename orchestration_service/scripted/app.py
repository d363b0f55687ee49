"""The scripted model as an ASGI app: a Messages endpoint that answers from a script.

It speaks what the CLI and the model broker need: ``/v1/messages`` streamed and in one piece, and
``/v1/messages/count_tokens``, under any path prefix. What it refuses, it refuses as the real endpoint does.
"""

import hmac
import json
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestration_service.scripted.conversation import conversation_key, find_position
from orchestration_service.scripted.playback import Take, play
from orchestration_service.scripted.script import Script
from workflow_schemas.model_stream import error_body

_SECRET_HEADERS = frozenset({"x-api-key", "authorization"})
_MAX_REQUEST_BYTES = 64 * 1024 * 1024
_MAX_COUNTERS = 10_000


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived, for tests and for people who write scripts."""

    path: str
    """Path with its query."""
    headers: dict[str, str]
    """Headers in lower case; the values of keys and tokens are left out."""
    body: dict[str, Any]
    """JSON body."""
    conversation: str
    """Conversation it was taken to belong to."""
    step: str | None
    """Step it was answered with, such as ``steps[3]``; nothing if the script was over or no step was asked for."""


class _Counters:
    """Counts per key, forgetting the oldest keys; a scripted model may run for months."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def next(self, key: str) -> int:
        """Give how often the key was asked for before."""
        count = self._counts.pop(key, 0)
        self._counts[key] = count + 1
        if len(self._counts) > _MAX_COUNTERS:
            self._counts.popitem(last=False)
        return count


class ScriptedModel:
    """An ASGI app that plays one script to any number of conversations."""

    def __init__(
        self,
        script: Script,
        *,
        placeholders: Mapping[str, str] | None = None,
        expected_key: SecretStr | None = None,
        pace: float = 1.0,
        keep_requests: int = 256,
    ) -> None:
        """Prepare the script.

        Args:
            script: what to play.
            placeholders: values that win over the script's own, such as ``{"workspace": "/workspace"}``.
            expected_key: when given, requests need it as ``x-api-key`` or as bearer token.
            pace: factor for all waits of the script; 0 plays at once.
            keep_requests: how many received requests are kept to look at.
        """
        self.script = script.filled(placeholders)
        self._expected_key = expected_key
        self._pace = pace
        self._received: deque[ReceivedRequest] = deque(maxlen=keep_requests)
        self._taken = _Counters()
        self._faults = _Counters()
        self._app = Starlette(
            routes=[
                Route("/", self._status, methods=["GET"]),
                Route("/{path:path}", self._route, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            ]
        )

    @property
    def received(self) -> tuple[ReceivedRequest, ...]:
        """The latest requests, oldest first."""
        return tuple(self._received)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._app(scope, receive, send)

    async def _status(self, request: Request) -> Response:
        return JSONResponse({"name": "scripted-model", "script": self.script.name, "status": "Ready"})

    async def _route(self, request: Request) -> ASGIApp:
        path = request.url.path
        counting = path.endswith("/v1/messages/count_tokens")
        if request.method != "POST" or not (counting or path.endswith("/v1/messages")):
            return _refuse(404, "not_found_error", f"no endpoint {request.method} {path!r} here")
        if not self._knows_key(request):
            return _refuse(401, "authentication_error", "invalid x-api-key")
        try:
            data = await request.body()
        except ClientDisconnect:
            return _refuse(400, "invalid_request_error", "the caller left in the middle of its request")  # nobody hears it
        if len(data) > _MAX_REQUEST_BYTES:
            return _refuse(413, "request_too_large", f"the request is larger than {_MAX_REQUEST_BYTES} bytes")
        body = _json_object(data)
        problem = "the body is no JSON object" if body is None else _problem(body, counting=counting)
        if body is None or problem:
            return _refuse(400, "invalid_request_error", problem or "")
        if counting:
            self._record(request, body, None)
            return JSONResponse({"input_tokens": max(1, len(data) // 4)})
        return await self._answer(request, body, len(data))

    async def _answer(self, request: Request, body: dict[str, Any], request_chars: int) -> ASGIApp:
        position = find_position(self.script, body)
        conversation = conversation_key(request.headers, body)
        if self.script.stepping == "in_order":
            taken = self._taken.next(f"{conversation}/{position.part}")
            position = type(position)(position.part, position.steps, taken)
        index = position.index(self.script.when_over)
        if index is None:
            self._record(request, body, None)
            over = f"script {self.script.name!r} has {len(position.steps)} steps in {position.part}; all were played"
            return _refuse(400, "invalid_request_error", over)
        self._record(request, body, f"{position.part}[{index}]")
        step = position.steps[index]
        # the length too: a step that is played again in a later turn must not repeat its ids, which the CLI takes for a repeated answer
        seed = f"{conversation}/{position.part}/{position.answered}/{len(body['messages'])}"
        with_fault = step.faulty and (step.fault_times is None or self._faults.next(seed) < step.fault_times)
        take = Take(
            seed=seed,
            model=str(body["model"]),
            request_chars=request_chars,
            stream=body.get("stream") is True,
            delta_chars=self.script.delta_chars,
            pace=self._pace,
        )
        if step.delay_seconds and self._pace:
            await anyio.sleep(step.delay_seconds * self._pace)
        return play(step, take, with_fault=with_fault)

    def _knows_key(self, request: Request) -> bool:
        if self._expected_key is None:
            return True
        expected = self._expected_key.get_secret_value().encode()
        given = (request.headers.get("x-api-key", ""), request.headers.get("authorization", "").removeprefix("Bearer "))
        return any(hmac.compare_digest(value.encode(), expected) for value in given)

    def _record(self, request: Request, body: dict[str, Any], step: str | None) -> None:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = {name: "***" if name in _SECRET_HEADERS else value for name, value in request.headers.items()}
        self._received.append(ReceivedRequest(path, headers, body, conversation_key(request.headers, body), step))


def _refuse(status: int, kind: str, message: str) -> Response:
    return JSONResponse(error_body(kind, message), status)


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _problem(body: Mapping[str, Any], *, counting: bool) -> str | None:
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "model: field required"
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        return "messages: at least one message is required"
    if not counting and (not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1):
        return "max_tokens: a positive number is required"
    return None
