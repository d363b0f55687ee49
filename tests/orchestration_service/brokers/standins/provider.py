"""A provider of models, as far as all of them are alike: it checks who asks and what for, then does what it is told to."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MODEL = "claude-of-today"
TEXT = "Hello from the model."

Event = dict[str, Any]


class Denied(Exception):
    """A request is not accepted; carries the provider's own answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def events(text: str = TEXT) -> Iterator[Event]:
    """Give the events of an answer in three pieces."""
    usage = {"input_tokens": 30, "output_tokens": 1}
    message: Event = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": {**message, "stop_sequence": None, "usage": usage}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for start in range(0, len(text), 8):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text[start : start + 8]}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


@dataclass
class Asked:
    """One request that was accepted."""

    headers: dict[str, str]
    """Its headers, names in lower case."""
    body: dict[str, Any]
    """Its body."""
    path: str
    """Its path, as it was sent."""


@dataclass
class Provider(ABC):
    """An ASGI app. Put behaviours into `plan`; each request takes the first one, and without any there is an answer."""

    plan: list[str] = field(default_factory=list)
    """What to do with the next requests: one of the behaviours below, or refuse with these words."""
    asked: list[Asked] = field(default_factory=list)
    """What was accepted."""
    denied: list[Response] = field(default_factory=list)
    """What was not."""

    media_type = "text/event-stream"

    @abstractmethod
    def check(self, request: Request, path: str, body: bytes) -> None:
        """Raise `Denied` unless the proof in a request is the provider's own kind and right."""

    @abstractmethod
    def model_of(self, request: Request, path: str, body: dict[str, Any]) -> str:
        """Give the model a request is for; asserts that it is written in the provider's form."""

    @abstractmethod
    def frame(self, event: Event) -> bytes:
        """Write an event as it goes over the wire."""

    @abstractmethod
    def error(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
        """Write an error: of kind `throttled`, `overloaded`, `not_found`, `unauthorized` or `invalid`."""

    @abstractmethod
    def inner_error(self) -> bytes:
        """Write the failure of a model inside its stream."""

    def counted(self, body: dict[str, Any]) -> Event:
        """Answer a request for a count of tokens."""
        return {"input_tokens": len(body["messages"]) * 10}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        content, path = await request.body(), scope["raw_path"].decode("ascii")
        try:
            self.check(request, path, content)
            body = json.loads(content)
            model = self.model_of(request, path, body)
            if model != MODEL:
                raise Denied(self.error(404, "not_found", f"there is no model {model}"))
        except Denied as denied:
            self.denied.append(denied.response)
            await denied.response(scope, receive, send)
            return
        self.asked.append(Asked({name.lower(): value for name, value in request.headers.items()}, body, path))
        if "count" in path:
            await Response(json.dumps(self.counted(body)), media_type="application/json")(scope, receive, send)
            return
        await self._behave(self.plan.pop(0) if self.plan else "answer", scope, receive, send)

    async def _behave(self, behaviour: str, scope: Scope, receive: Receive, send: Send) -> None:
        whole = [self.frame(event) for event in events()]
        streams = {
            "answer": whole,
            "cut": whole[:4],
            "damage": [*whole[:4], self.damaged(whole[4]), *whole[5:]],
            "fail_inside": [*whole[:4], self.inner_error()],
        }
        if behaviour in streams:
            await self._stream(streams[behaviour], send)
        elif behaviour.startswith("hang"):
            if behaviour == "hang_inside":
                await self._stream(whole[:3], send, more=True)
            await asyncio.sleep(3600)
        elif behaviour == "throttle":
            await self.throttled()(scope, receive, send)
        elif behaviour == "overload":
            await self.overloaded()(scope, receive, send)
        else:
            await self.error(400, "invalid", behaviour)(scope, receive, send)

    async def _stream(self, frames: Iterable[bytes], send: Send, *, more: bool = False) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", self.media_type.encode())]})
        for frame in frames:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        if not more:
            await send({"type": "http.response.body", "body": b""})

    def throttled(self) -> Response:
        """Refuse for a moment."""
        return self.error(429, "throttled", "slow down")

    def overloaded(self) -> Response:
        """Have no room."""
        return self.error(529, "overloaded", "no room")

    def damaged(self, frame: bytes) -> bytes:
        """Break a frame so that a reader can notice."""
        return b"\x00<" + frame


def sse(event: Event) -> bytes:
    """Write an event as a server-sent one."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
