"""What a failed attempt means: whether to ask again, and what to tell the CLI.

Pure, because every line here was learned from somebody's outage:

- A request that was refused for what it says (400, 404, 413, 422) will be refused again. A key that does not work
  (401, 402, 403) will not work in a second either. Asking again only delays the message to the user.
- Too many requests and overload pass. So do 408, 409 and the 5xx, except 501; and 424, with which Bedrock reports that
  the model behind it failed.
- Inside a stream the status is 200 already, and the error event's type takes the place of the status.
- Nothing was delivered to the sandbox before the message was whole, so a broken stream may always be asked for again.
- A sign-in page with status 200 stays one until somebody changes the configuration.
- ``x-should-retry: false`` is the endpoint's own word and wins; ``true`` does not win over a refusal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from orchestration_service.brokers.call import Reason
from orchestration_service.brokers.errors import (
    EmptyStream,
    IdentityAway,
    IdentityRefused,
    NotAModel,
    RouteUnusable,
    StreamCut,
    StreamStalled,
)
from orchestration_service.brokers.retry import retry_after_seconds
from workflow_schemas.model_stream import IncompleteMessage, ModelStreamError, StreamedError, error_body


@dataclass(frozen=True)
class Verdict:
    """What to do about an attempt that gave no message."""

    retry: bool
    """Whether another attempt may help."""
    reason: Reason
    """What went wrong, in one word."""
    status: int
    """Status to tell the CLI if this was the last attempt."""
    error: dict[str, Any]
    """Error body to tell the CLI, in the API's shape."""
    wait_seconds: float | None = None
    """How long the upstream asked to wait, if it did."""


_STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TYPE_OF_STATUS: Mapping[int, str] = {status: kind for kind, status in _STATUS_OF_TYPE.items()}

_UNAUTHORIZED = frozenset({401, 402, 403})
_PASSING = frozenset({408, 409, 424, 429})

_FAULTS: tuple[tuple[type[Exception], bool, Reason, int, str], ...] = (
    (IdentityRefused, False, "unauthorized", 401, "the service's identity may not call the model's endpoint"),
    (IdentityAway, True, "unreachable", 502, "whoever proves the service's identity cannot be reached"),
    (NotAModel, False, "not_a_model", 502, "the model's address answers with something that is no model"),
    (EmptyStream, True, "empty", 502, "the model's endpoint sent an empty stream"),
    (StreamStalled, True, "stalled", 504, "the model's stream fell silent"),
    (StreamCut, True, "cut", 502, "the model's stream ended too early"),
    (IncompleteMessage, True, "cut", 502, "the model's stream ended too early"),
    (ModelStreamError, True, "malformed", 502, "the model's endpoint sent a stream that cannot be read"),
    (httpx.ConnectError, True, "unreachable", 502, "the model's endpoint cannot be reached"),
    (httpx.ConnectTimeout, True, "unreachable", 504, "the model's endpoint cannot be reached"),
    (httpx.TimeoutException, True, "no_answer", 504, "the model's endpoint does not answer"),
    (httpx.NetworkError, True, "cut", 502, "the connection to the model's endpoint broke"),
    (httpx.RemoteProtocolError, True, "cut", 502, "the model's endpoint closed the connection"),
    (httpx.DecodingError, True, "malformed", 502, "the model's endpoint sent a body that cannot be decoded"),
)


def judge(
    *,
    status: int | None,
    headers: Mapping[str, str],
    body: object,
    exception: Exception | None,
    now: datetime,
) -> Verdict:
    """Judge an attempt that gave no message.

    Args:
        status: HTTP status, if an answer began.
        headers: headers of the answer, names in lower case.
        body: JSON body of an answer that was no 200.
        exception: what broke the attempt, if something did.
        now: the time, with its zone.
    """
    if isinstance(exception, StreamedError):
        kind = str(exception.error.get("type"))
        return _of_status(_STATUS_OF_TYPE.get(kind, 500), headers, {"error": exception.error}, now)
    if exception is not None:
        return _of_exception(exception)
    if status is None or status < 400:
        return _of_exception(NotAModel(f"status {status}"))
    return _of_status(status, headers, body, now)


def _of_exception(exception: Exception) -> Verdict:
    if isinstance(exception, RouteUnusable):
        return _fault(False, "unreachable", 502, str(exception))
    for kind, retry, reason, status, sentence in _FAULTS:
        if isinstance(exception, kind):
            return _fault(retry, reason, status, sentence)
    # every other error of the HTTP library is about how the route is set up, such as a proxy that does not exist
    return _fault(False, "unreachable", 502, f"the model's endpoint cannot be called ({type(exception).__name__})")


def _fault(retry: bool, reason: Reason, status: int, sentence: str) -> Verdict:
    error = error_body(_TYPE_OF_STATUS.get(status, "api_error"), f"{sentence}; the service could not get an answer")
    return Verdict(retry, reason, status, error)


def _of_status(status: int, headers: Mapping[str, str], body: object, now: datetime) -> Verdict:
    passing = status in _PASSING or (status >= 500 and status != 501)
    retry = passing and headers.get("x-should-retry") != "false"
    return Verdict(
        retry=retry,
        reason=_reason(status),
        status=status,
        error=_error_of(status, body),
        wait_seconds=retry_after_seconds(headers, now),
    )


def _reason(status: int) -> Reason:
    if status in _UNAUTHORIZED:
        return "unauthorized"
    if status == 429:
        return "rate_limited"
    if status in (503, 529):
        return "overloaded"
    return "server_error" if status >= 500 else "refused"


def _error_of(status: int, body: object) -> dict[str, Any]:
    """Give the upstream's error in the API's shape; gateways have shapes of their own."""
    kind = _TYPE_OF_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    inner = body.get("error") if isinstance(body, dict) else None
    if isinstance(inner, str) and inner:
        return error_body(kind, inner[:4000])
    if isinstance(inner, dict) and isinstance(inner.get("message"), str):
        known = str(inner.get("type"))
        return error_body(known if known in _STATUS_OF_TYPE else kind, inner["message"][:4000])
    for name in ("message", "Message"):  # AWS writes it in both ways
        if isinstance(body, dict) and isinstance(body.get(name), str):
            return error_body(kind, body[name][:4000])
    return error_body(kind, f"the model's endpoint answered with status {status}")
