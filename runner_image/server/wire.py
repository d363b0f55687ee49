"""The little of HTTP that five routes need, straight on ASGI."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from .errors import BadRequest

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_JSON_BYTES = 256 * 1024 * 1024


class ClientLeft(Exception):
    """The client closed the connection before its request was complete; nobody is left to answer."""


async def body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    """Give the request's body as it arrives.

    Raises:
        ClientLeft: The connection ended inside the body.
    """
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


async def read_json_object(receive: Receive) -> dict[str, object]:
    """Read the whole body as a JSON object.

    Raises:
        BadRequest: It is none, or larger than this server takes.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in body_chunks(receive):
        size += len(chunk)
        if size <= MAX_JSON_BYTES:
            chunks.append(chunk)
    if size > MAX_JSON_BYTES:
        raise BadRequest(f"The request body is {size} bytes long; at most {MAX_JSON_BYTES} are taken.")
    try:
        value = json.loads(b"".join(chunks))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The request body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadRequest(f"The request body is a JSON {type(value).__name__}; send an object.")
    return value


def header(scope: Scope, name: bytes) -> bytes:
    """Give the value of a request header, or nothing.

    Args:
        scope: The request.
        name: Lower-case name.
    """
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")


async def send_json(send: Send, value: object, status: int = 200) -> None:
    """Answer with compact JSON; half surrogate pairs become question marks rather than an invalid answer."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    await send_start(send, status, len(body), [(b"content-type", b"application/json")])
    await send({"type": "http.response.body", "body": body})


async def send_start(send: Send, status: int, length: int, headers: list[tuple[bytes, bytes]]) -> None:
    """Send the head of an answer of known length."""
    headers = [*headers, (b"content-length", str(length).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
