"""One judgement: what does this answer of the Context API mean?

It is not read off the status. The server turns every exception into 500 (so "not yours" and "language is wrong" look
like a crash), reports a failed DELETE as 200 with an error inside, and speaks five dialects of failure: DomainError,
validation problem, problem details, a plain sentence, and silence. What tells them apart are `type`, `title` and the
kind of call; the sentences are nobody's contract and are never looked at.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from context_client.errors import (
    ContentRefused,
    ContextApiError,
    InvalidRequest,
    NotFoundOrNotOwned,
    ProtocolError,
    ServerFault,
    TooLarge,
    Unauthorized,
    WrongInstance,
)

Purpose = Literal["lookup", "create"]
"""Whether a call names something that must exist already, or asks for something new."""

_DOMAIN_ERROR_TYPES = frozenset({"exception", "generic-error"})
# The classes the real server throws for "no such record for this user" as well as for validators.
_REFUSING_EXCEPTIONS = frozenset({"ContextServiceException", "Exception"})
_LONGEST_DETAIL = 4096

_BY_STATUS: Mapping[int, type[ContextApiError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: WrongInstance,
    404: NotFoundOrNotOwned,
    405: ProtocolError,
    413: TooLarge,
    415: ContentRefused,
    422: ContentRefused,
}


def judge(status: int, content_type: str, body: bytes, *, purpose: Purpose = "lookup") -> ContextApiError | None:
    """Turn an answer into the error it stands for.

    Give it failures, and the answers of calls that have nothing to say on success (DELETE); a file's own bytes may
    look like an error and must not come here.

    Args:
        status: The HTTP status.
        content_type: The `Content-Type` header, possibly empty.
        body: The whole body.
        purpose: What the call was for; decides what an exception of the server most likely says.

    Returns:
        The error, or None for a 2xx answer without an error inside.
    """
    problem = _parse_problem(body)
    is_domain_error = problem is not None and problem.get("type") in _DOMAIN_ERROR_TYPES and "title" in problem
    if 200 <= status < 300:
        if not is_domain_error:
            return None
        status = _inner_status(problem)
    if problem is None:
        return _judge_text(status, content_type, body)
    title = str(problem.get("title") or "unnamed error")
    detail = _shorten(_detail_of(problem))
    if is_domain_error and status >= 500:
        kind: type[ContextApiError] = ServerFault
        if problem["type"] == "exception" and title in _REFUSING_EXCEPTIONS:
            kind = NotFoundOrNotOwned if purpose == "lookup" else InvalidRequest
        return kind(title, detail=detail, status=status)
    return _kind_of(status)(title, detail=detail, status=status)


def _judge_text(status: int, content_type: str, body: bytes) -> ContextApiError:
    text = _shorten(body.decode("utf-8", "replace").strip())
    if content_type.partition(";")[0].strip().lower() == "text/html":
        return ProtocolError("a web page answered instead of the Context API", detail=text, status=status)
    return _kind_of(status)("the Context API refused the call", detail=text or None, status=status)


def _kind_of(status: int) -> type[ContextApiError]:
    if status >= 500:
        return ServerFault
    if 400 <= status < 500:
        return _BY_STATUS.get(status, InvalidRequest)
    return ProtocolError


def _parse_problem(body: bytes) -> dict[str, Any] | None:
    if not body.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _inner_status(problem: dict[str, Any] | None) -> int:
    status = (problem or {}).get("status")
    return status if isinstance(status, int) and 400 <= status < 600 else 500


def _detail_of(problem: dict[str, Any]) -> str | None:
    if isinstance(problem.get("detail"), str):
        return str(problem["detail"])
    errors = problem.get("errors")
    return json.dumps(errors, ensure_ascii=False) if errors else None


def _shorten(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST_DETAIL:
        return text
    return text[:_LONGEST_DETAIL] + "…"
