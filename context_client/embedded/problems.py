"""What the server answers when it does not do as asked.

Problem                     carries a whole answer: status, media type, body
├── refused(...)              an explicit refusal: its own status, DomainError `generic-error`
└── thrown(...)               what the real server throws: always 500, DomainError `exception`, title = .NET class

SandboxUnreachable          a sandbox could not be started or talked to; becomes a Problem or a failed execution

The real server turns every exception into 500, so "not found" and "wrong language" look like a crash there, and here.
"""

import json
import secrets
from collections.abc import Mapping
from typing import Any

JSON = "application/json; charset=utf-8"
PROBLEM_JSON = "application/problem+json"
PLAIN = "text/plain; charset=utf-8"

CONTEXT_SERVICE = "ContextServiceException"
NETWORK = "HttpRequestException"
TIMED_OUT = "TaskCanceledException"
BAD_JSON = "JsonException"
IO = "IOException"
STORE = "CosmosException"
NULL_REFERENCE = "NullReferenceException"
ANY_EXCEPTION = "Exception"


class Problem(Exception):
    """An answer that is not success.

    Attributes:
        status: HTTP status.
        media_type: Content type of the body.
        body: The body.
    """

    def __init__(self, status: int, media_type: str, body: bytes) -> None:
        self.status = status
        self.media_type = media_type
        self.body = body
        super().__init__(f"{status}: {body[:200].decode('utf-8', 'replace')}")


class SandboxUnreachable(Exception):
    """A sandbox could not be started or talked to.

    Attributes:
        title: The .NET class name the real server would show.
    """

    def __init__(self, title: str, message: str) -> None:
        self.title = title
        super().__init__(message)


def refused(status: int, detail: str) -> Problem:
    """Make an explicit refusal, which keeps its status on the wire."""
    return Problem(status, JSON, _domain_error("generic-error", "Generic Error", status, detail))


def thrown(title: str, detail: str) -> Problem:
    """Make what an exception of the real server looks like: 500, whatever it was about."""
    return Problem(500, JSON, _domain_error("exception", title, 500, detail))


def plain(status: int, sentence: str) -> Problem:
    """Make an answer that is one sentence."""
    return Problem(status, PLAIN, sentence.encode())


def invalid(errors: Mapping[str, list[str]]) -> Problem:
    """Make the framework's answer to a body that does not fit: 400, validation problem."""
    body = {
        "type": "https://tools.ietf.org/html/rfc9110#section-15.5.1",
        "title": "One or more validation errors occurred.",
        "status": 400,
        "errors": dict(errors),
        "traceId": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
    }
    return Problem(400, PROBLEM_JSON, to_json(body))


def framework(status: int, title: str) -> Problem:
    """Make the framework's own answer: problem details."""
    body = {
        "type": f"https://tools.ietf.org/html/rfc9110#status.{status}",
        "title": title,
        "status": status,
        "traceId": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
    }
    return Problem(status, PROBLEM_JSON, to_json(body))


def to_json(value: Any) -> bytes:
    """Write JSON; text from sandboxes may hold lone surrogates, which UTF-8 cannot carry and become '?'."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _domain_error(kind: str, title: str, status: int, detail: str) -> bytes:
    return to_json({"type": kind, "title": title, "status": status, "detail": detail, "instance": None, "extensions": {}})
