"""Reads the binary event stream in which Amazon Bedrock wraps a model's events; needs the extra `bedrock`.

The frames, their lengths and checksums are botocore's to read. What an exception inside the stream means is ours: it
becomes an `error` event, so that a stream that breaks here is judged like one of Anthropic itself.
"""

import base64
import json
from collections.abc import Mapping

from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError

from orchestration_service.brokers.call import JsonObject
from workflow_schemas.model_stream import MalformedStream, error_body

_TYPE_OF_EXCEPTION: Mapping[str, str] = {
    "throttlingException": "rate_limit_error",
    "serviceUnavailableException": "overloaded_error",
    "modelTimeoutException": "timeout_error",
    "validationException": "invalid_request_error",
    "accessDeniedException": "permission_error",
}
_TYPE_OF_ORIGINAL: Mapping[int, str] = {
    400: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class AwsFrames:
    """Turns the bytes of a stream into the events they carry, however they are cut."""

    def __init__(self) -> None:
        self._buffer = EventStreamBuffer()
        self._damage: Exception | None = None

    def feed(self, chunk: bytes) -> list[JsonObject]:
        """Take the next bytes and give the events they complete, in order; an exception is an `error` event.

        Raises:
            MalformedStream: a frame is damaged, or carries no event.
        """
        events: list[JsonObject] = []
        try:
            if self._damage is not None:
                raise self._damage
            self._buffer.add_data(chunk)
            for frame in self._buffer:
                event = _event_of(frame)
                if event is not None:
                    events.append(event)
        except (ParserError, ValueError, KeyError, RecursionError) as error:
            self._damage = error
            if events:  # what came whole is used first, and counted
                return events
            raise MalformedStream(f"a frame of the stream cannot be read ({type(error).__name__})") from error
        return events


def _event_of(frame: EventStreamMessage) -> JsonObject | None:
    headers = frame.headers
    if headers.get(":message-type") in ("exception", "error"):
        return _failure(str(headers.get(":exception-type") or headers.get(":error-code")), frame.payload, headers)
    if headers.get(":event-type") != "chunk":
        return None
    event = json.loads(base64.b64decode(json.loads(frame.payload)["bytes"], validate=True))
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise ValueError("the chunk carries no event")
    return event


def _failure(name: str, payload: bytes, headers: Mapping[str, object]) -> JsonObject:
    try:
        told = json.loads(payload)
    except ValueError:
        told = None
    told = told if isinstance(told, dict) else {}
    message = told.get("originalMessage") or told.get("message") or headers.get(":error-message") or "no reason was given"
    original = told.get("originalStatusCode")
    kind = _TYPE_OF_EXCEPTION.get(name) or _TYPE_OF_ORIGINAL.get(original if isinstance(original, int) else 0, "api_error")
    return error_body(kind, f"{name}: {message}")
