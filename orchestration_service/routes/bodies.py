"""Reading a request body, with a limit, into a completion request."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.requests import Request

from orchestration_service.errors import RequestInvalid, RequestTooLarge
from orchestration_service.routes.problems import describe_invalid
from workflow_schemas.platform import CompletionRequest


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Return the body.

    Raises:
        RequestTooLarge: It is announced to be, or turns out to be, over the limit; the rest is not read.
    """
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > limit_bytes:
        raise RequestTooLarge(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise RequestTooLarge(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def read_completion(body: bytes) -> CompletionRequest:
    """Return the completion request in a body. Only its shape is judged; what it means is the planner's business.

    Raises:
        RequestInvalid: It is not JSON, not an object, or lacks what every request has.
    """
    try:
        return CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestInvalid(describe_invalid(error, "The completion request")) from error
