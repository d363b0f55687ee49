"""How a step of a script looks on the wire: a message of the Messages API, or one of the faults a real one may show."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import anyio
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from orchestration_service.scripted.script import HttpAnswer, Step
from workflow_schemas.model_stream import UNFINISHED_INPUT, encode_event, error_body, message_to_sse

EVENT_STREAM = "text/event-stream; charset=utf-8"

_ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True)
class Take:
    """One playing of a step: what the answer depends on besides the step itself."""

    seed: str
    """Names the conversation and the step; ids in the answer are derived from it, so a repeat gets the same ids."""
    model: str
    """Model of the request, which the answer repeats."""
    request_chars: int
    """Length of the request, from which its tokens are estimated."""
    stream: bool
    """Whether the request asked for an event stream."""
    delta_chars: int
    """Length of the pieces a text is streamed in."""
    pace: float
    """Factor for all waits of the script; 0 plays at once."""


class StreamAnswer:
    """An ASGI response that sends events one by one and then ends, drops the connection, or keeps it open."""

    def __init__(self, events: Sequence[bytes], *, wait_seconds: float = 0, ending: Literal["end", "drop", "hold"] = "end") -> None:
        # without waits all events travel at once: nobody could tell the difference, and it costs far less
        self._chunks = list(events) if wait_seconds else [b"".join(events)]
        self._wait_seconds = wait_seconds
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        headers = [(b"content-type", EVENT_STREAM.encode()), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, chunk in enumerate(self._chunks):
            if number:
                await anyio.sleep(self._wait_seconds)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if self._ending == "hold":
            await _until_gone(receive)
        if self._ending != "drop":  # a response left unfinished makes the server close the connection
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class SilentAnswer:
    """An ASGI response that never sends a byte, and goes away with its client."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the client to leave."""
        await _until_gone(receive)


def play(step: Step, take: Take, *, with_fault: bool) -> Response | StreamAnswer | SilentAnswer:
    """Give the response for a step, with its fault or without."""
    if with_fault and step.http is not None:
        return http_answer(step.http)
    if with_fault and step.stall == "before_first_byte":
        return SilentAnswer()
    if with_fault and step.malformed == "html":
        return HTMLResponse("<!doctype html><title>Welcome</title><p>Please sign in to continue.</p>")
    message = build_message(step, take, cut_inputs=with_fault and step.malformed == "bad_tool_input")
    wait_seconds = step.chunk_delay_seconds * take.pace
    events = list(message_to_sse(message, delta_chars=take.delta_chars))
    if with_fault and (step.malformed or step.stall):
        return _broken_stream(step, events, wait_seconds)
    if not take.stream:
        return JSONResponse(message)
    return StreamAnswer(events, wait_seconds=wait_seconds)


def http_answer(answer: HttpAnswer) -> Response:
    """Give a plain HTTP answer; without a body it is the error the Messages API would send with this status."""
    if isinstance(answer.body, str):
        return Response(answer.body, answer.status, answer.headers)
    body = answer.body
    if body is None:
        kind = _ERROR_TYPES.get(answer.status, "api_error")
        body = error_body(kind, f"The script answers with status {answer.status}.")
    return JSONResponse(body, answer.status, answer.headers)


def build_message(step: Step, take: Take, *, cut_inputs: bool = False) -> dict[str, Any]:
    """Give the message of a step; the same take gives the same message."""
    content: list[dict[str, Any]] = []
    if step.thinking:
        signature = hashlib.sha256(f"{take.seed}:{step.thinking}".encode()).hexdigest()
        content.append({"type": "thinking", "thinking": step.thinking, "signature": signature})
    if step.text:
        content.append({"type": "text", "text": step.text})
    for number, tool in enumerate(step.tool_use):
        block = {"type": "tool_use", "id": f"toolu_{_digest(take.seed, number)}", "name": tool.name, "input": tool.input}
        if cut_inputs:
            block = {**block, "input": {}, UNFINISHED_INPUT: '{"file_path": "/wor'}
        content.append(block)
    if not content:  # a step that is only a fault, played half
        content.append({"type": "text", "text": "Let me have a look at this."})
    return {
        "id": f"msg_{_digest(take.seed, 'message')}",
        "type": "message",
        "role": "assistant",
        "model": take.model,
        "content": content,
        "stop_reason": step.stop_reason or ("tool_use" if step.tool_use else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": max(1, take.request_chars // 4),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": max(1, len(str(content)) // 4),
            **step.usage,
        },
    }


def _broken_stream(step: Step, events: list[bytes], wait_seconds: float) -> Response | StreamAnswer:
    # half of the events includes at least the first piece of content: start, ping, block start, delta, …
    half = events[: max(4, len(events) // 2)]
    if step.stall == "mid_stream":
        return StreamAnswer(half, wait_seconds=wait_seconds, ending="hold")
    if step.malformed == "empty":
        return Response(b"", media_type="text/event-stream")
    if step.malformed == "garbage":
        return Response(b"%% this is no event stream %%\n\n", media_type="text/event-stream")
    if step.malformed == "cut":
        return StreamAnswer(half, wait_seconds=wait_seconds, ending="drop")
    if step.malformed == "unfinished":
        return StreamAnswer(half, wait_seconds=wait_seconds)
    if step.malformed == "error_event":
        error = encode_event(error_body("overloaded_error", "The script gives up inside the stream."))
        return StreamAnswer([*half, error], wait_seconds=wait_seconds)
    return StreamAnswer(events, wait_seconds=wait_seconds)


def _digest(seed: str, part: object) -> str:
    return hashlib.sha256(f"{seed}/{part}".encode()).hexdigest()[:24]


async def _until_gone(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
