"""Reading a request body, with a limit, into a completion request."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import anyio
from pydantic import ValidationError
from starlette.requests import Request

from orchestration_service.errors import RequestInvalid, RequestTooLarge
from orchestration_service.routes.problems import describe_invalid
from orchestration_service.user_workspace import RESERVED
from workflow_schemas.platform import CompletionRequest

OPERATION_ID_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""What an operation id may look like: it becomes part of paths, names and log lines."""
CONVERSATION_LIMIT = 256
"""Longest conversation id, in characters."""
DISCARD_BYTES = 16 * 1024 * 1024
"""How much of a refused body is read and thrown away, at most."""
DISCARD_SECONDS = 5.0
"""For how long, at most."""


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Return the body.

    Raises:
        RequestTooLarge: It is announced to be, or turns out to be, over the limit.
    """
    announced = request.headers.get("content-length", "0")
    stream = request.stream()
    if announced.isdecimal() and int(announced[:20]) > limit_bytes:
        await _discard(stream)
        raise RequestTooLarge(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > limit_bytes:
            await _discard(stream)
            raise RequestTooLarge(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


async def _discard(stream: AsyncIterator[bytes]) -> None:
    """Read on for a while: a sender that is still busy sending would see a reset connection and not our answer."""
    discarded = 0
    with anyio.move_on_after(DISCARD_SECONDS):
        async for chunk in stream:
            discarded += len(chunk)
            if discarded > DISCARD_BYTES:
                return


def read_completion(body: bytes) -> CompletionRequest:
    """Return the completion request in a body. Only its shape is judged; what it means is the planner's business.

    Raises:
        RequestInvalid: It is not JSON, not an object, or lacks what every request has.
    """
    try:
        completion = CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestInvalid(describe_invalid(error, "The completion request")) from error
    if completion.operation_id and not re.fullmatch(OPERATION_ID_PATTERN, completion.operation_id):
        raise RequestInvalid(
            "operation_id must be 1 to 128 letters, digits, '.', '_' or '-', and start with a letter or digit. "
            "Send a GUID, or leave it out and use the one in the answer."
        )
    if len(completion.session_id) > CONVERSATION_LIMIT:
        raise RequestInvalid(f"session_id is longer than {CONVERSATION_LIMIT} characters. Send the conversation's id.")
    if completion.session_id.startswith(RESERVED):
        raise RequestInvalid(f"session_id begins with {RESERVED!r}, which is reserved. Send the conversation's id.")
    return completion
