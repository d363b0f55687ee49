"""How the emulated pool speaks for itself, and how it hands on what a sandbox says."""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from context_client.pools.baseline import fact

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = dict[str, Any]

_JSON = "application/json; charset=utf-8"


class Refused(Exception):
    """The pool itself answers, and the sandbox hears nothing.

    Attributes:
        status: HTTP status.
        code: The pool's name for what is wrong; none where it says nothing at all.
        headers: More headers.
    """

    def __init__(self, status: int, code: str = "", message: str = "", *, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        super().__init__(message)

    def body(self) -> bytes:
        """Its words: flat for a full pool, nested for all else, as published."""
        if not self.code:
            return b""
        if self.code == fact("capacity.full_code"):
            return json.dumps({"code": self.code, "message": str(self)}).encode()
        return json.dumps({"error": {"code": self.code, "message": str(self), "traceId": uuid.uuid4().hex}}).encode()


class Cut(Exception):
    """The connection ends here, without an answer."""


async def answer_refusal(send: Send, refusal: Refused, headers: Mapping[str, str]) -> None:
    """Send the pool's own answer."""
    body = refusal.body()
    own = {"content-type": _JSON, "content-length": str(len(body)), "api-supported-versions": fact("api_version.supported_header")}
    own |= {"x-ms-error-code": refusal.code} if refusal.code else {}
    await begin(send, refusal.status, own | refusal.headers | dict(headers))
    await send({"type": "http.response.body", "body": body})


async def cut(send: Send) -> None:
    """End the connection: a server ends one whose answer is shorter than announced. Returning does the rest."""
    await begin(send, 200, {"content-length": "1"})


async def begin(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Send the head of an answer."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
