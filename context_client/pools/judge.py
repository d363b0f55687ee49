"""Whose answer is this: the pool's own, or the container's behind it?

A pool puts every path through to the container, so a status alone says little: a stock container answers 500 to a missing
file. What tells them apart, as far as it is known (`baseline.json` has the sources):

- A pool speaks of itself as JSON with a code, `{"error": {"code"}}` or `{"code", "message"}`, or names it in the header
  `x-ms-error-code`. A container of the protocol has `detail` or `status`.
- Full: 429, seen with the code `SessionsCountExceedsLimit`; 500 was seen too, without its words. One page of the manual
  says 404. So a 500 counts as full only in the pool's voice, or without any words, and only where no slot is known to be held.
- The container is hostile and can imitate all of this. Then its own session waits or fails, and nobody else's: that is
  why a session that has a slot never waits in the common line (see `provider.py`).
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

Verdict = Literal["answer", "full", "throttled", "token", "role", "identifier", "away"]
"""The container's answer, or the pool's: no slot free; slow down; token refused; role missing; identifier refused; in trouble."""

ERROR_CODE_HEADER = "x-ms-error-code"
SUSPICIOUS = frozenset({400, 401, 403, 404, 429, 500, 502, 503, 504})
"""Statuses that need a look at the body."""

_FULL_CODES = ("sessionscountexceedslimit", "sessioncountexceeds", "maxconcurrentsessions", "nosessionavailable")
_IDENTIFIER_CODES = ("sessionidentifier", "missingidentifier", "invalididentifier")


def judge(status: int, headers: Mapping[str, str], body: bytes, *, has_slot: bool) -> Verdict:
    """Tell whose answer it is, and what to do about it.

    Args:
        status: HTTP status.
        headers: Of the answer.
        body: Its beginning, or all of it.
        has_slot: Whether the session was served a moment ago, so that a slot must be its own.
    """
    if status not in SUSPICIOUS:
        return "answer"
    if status == 401:
        return "token"
    code = error_code(headers, body)
    if any(word in code for word in _FULL_CODES):
        return "full"
    if status == 429:
        return "throttled" if has_slot else "full"
    if status == 500 and not has_slot and (code or not body.strip()):
        return "full"
    if status == 403 and (code or not body.strip()):
        return "role"
    if status == 400 and any(word in code for word in _IDENTIFIER_CODES):
        return "identifier"
    if status in {502, 503, 504}:
        return "away"
    return "answer"


def error_code(headers: Mapping[str, str], body: bytes) -> str:
    """Read the code with which a pool names its own errors, in lower case; empty for anybody else's words."""
    named = headers.get(ERROR_CODE_HEADER, "")
    if named:
        return named.lower()
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(said, dict) or "detail" in said:
        return ""
    inner = said.get("error")
    code = inner.get("code") if isinstance(inner, dict) else said.get("code")
    return code.lower() if isinstance(code, str) else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After` in seconds, at most an hour; its date form is not used by pools."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, 3600.0) if seconds >= 0 else None
