"""What a failed attempt means, as a table."""

from datetime import UTC, datetime

import httpx
import pytest

from orchestration_service.brokers.errors import EmptyStream, NotAModel, StreamCut, StreamStalled
from orchestration_service.brokers.judge import Verdict, judge
from orchestration_service.brokers.retry import backoff_seconds, retry_after_seconds
from workflow_schemas.model_stream import DisorderedStream, MalformedStream, StreamedError

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def judged(
    status: int | None = None,
    headers: dict[str, str] | None = None,
    body: object = None,
    exception: Exception | None = None,
) -> Verdict:
    """Judge at a fixed time."""
    return judge(status=status, headers=headers or {}, body=body, exception=exception, now=NOW)


@pytest.mark.parametrize(
    ("status", "retry", "reason", "kind"),
    [
        (400, False, "refused", "invalid_request_error"),
        (401, False, "unauthorized", "authentication_error"),
        (402, False, "unauthorized", "billing_error"),
        (403, False, "unauthorized", "permission_error"),
        (404, False, "refused", "not_found_error"),
        (408, True, "refused", "invalid_request_error"),
        (413, False, "refused", "request_too_large"),
        (422, False, "refused", "invalid_request_error"),
        (429, True, "rate_limited", "rate_limit_error"),
        (500, True, "server_error", "api_error"),
        (501, False, "server_error", "api_error"),
        (502, True, "server_error", "api_error"),
        (503, True, "overloaded", "api_error"),
        (504, True, "server_error", "timeout_error"),
        (529, True, "overloaded", "overloaded_error"),
    ],
)
def test_statuses(status: int, retry: bool, reason: str, kind: str) -> None:
    verdict = judged(status, body={"unreadable": True})
    assert (verdict.retry, verdict.reason, verdict.status) == (retry, reason, status)
    assert verdict.error["error"]["type"] == kind


@pytest.mark.parametrize(
    ("exception", "retry", "reason", "status"),
    [
        pytest.param(httpx.ConnectError("x"), True, "unreachable", 502, id="refused"),
        pytest.param(httpx.ConnectTimeout("x"), True, "unreachable", 504, id="connect_timeout"),
        pytest.param(httpx.ReadTimeout("x"), True, "no_answer", 504, id="silence"),
        pytest.param(httpx.WriteTimeout("x"), True, "no_answer", 504, id="write_timeout"),
        pytest.param(httpx.ReadError("x"), True, "cut", 502, id="reset"),
        pytest.param(httpx.RemoteProtocolError("x"), True, "cut", 502, id="closed"),
        pytest.param(httpx.DecodingError("x"), True, "malformed", 502, id="bad_gzip"),
        pytest.param(httpx.ProxyError("x"), False, "unreachable", 502, id="proxy"),
        pytest.param(httpx.InvalidURL("x"), False, "unreachable", 502, id="bad_address"),
        pytest.param(MalformedStream("x"), True, "malformed", 502, id="malformed"),
        pytest.param(DisorderedStream("x"), True, "malformed", 502, id="disordered"),
        pytest.param(NotAModel("x"), False, "not_a_model", 502, id="html"),
        pytest.param(EmptyStream("x"), True, "empty", 502, id="empty"),
        pytest.param(StreamCut("x"), True, "cut", 502, id="cut"),
        pytest.param(StreamStalled("x"), True, "stalled", 504, id="stalled"),
        pytest.param(StreamedError({"type": "overloaded_error"}), True, "overloaded", 529, id="overloaded_event"),
        pytest.param(StreamedError({"type": "api_error"}), True, "server_error", 500, id="error_event"),
        pytest.param(StreamedError({"type": "invalid_request_error"}), False, "refused", 400, id="refusal_event"),
        pytest.param(StreamedError({"type": ["odd"]}), True, "server_error", 500, id="odd_event"),
    ],
)
def test_exceptions(exception: Exception, retry: bool, reason: str, status: int) -> None:
    verdict = judged(200, exception=exception)
    assert (verdict.retry, verdict.reason, verdict.status) == (retry, reason, status)


@pytest.mark.parametrize("status", [204, 302, None])
def test_what_is_neither_an_answer_nor_a_refusal_is_no_model(status: int | None) -> None:
    assert judged(status).reason == "not_a_model"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            {"type": "overloaded_error", "message": "Overloaded"},
            id="the_apis_own",
        ),
        pytest.param(
            {"error": {"code": "429", "message": "slow down"}},
            {"type": "rate_limit_error", "message": "slow down"},
            id="azure",
        ),
        pytest.param({"error": "no"}, {"type": "rate_limit_error", "message": "no"}, id="text"),
        pytest.param({"message": "nope"}, {"type": "rate_limit_error", "message": "nope"}, id="message"),
        pytest.param({"error": {"type": ["x"], "message": "m"}}, {"type": "rate_limit_error", "message": "m"}, id="odd_type"),
    ],
)
def test_errors_keep_the_words_and_get_the_apis_shape(body: object, expected: dict[str, str]) -> None:
    assert judged(429, body=body).error == {"type": "error", "error": expected}


def test_the_endpoint_may_forbid_another_attempt() -> None:
    assert not judged(529, {"x-should-retry": "false"}).retry
    assert not judged(401, {"x-should-retry": "true"}).retry


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({"retry-after": "7"}, 7, id="seconds"),
        pytest.param({"retry-after": "0.5"}, 0.5, id="fraction"),
        pytest.param({"retry-after-ms": "250", "retry-after": "1"}, 0.25, id="milliseconds"),
        pytest.param({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30, id="date"),
        pytest.param({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0, id="date_gone_by"),
        pytest.param({"retry-after": "soon"}, None, id="nonsense"),
        pytest.param({"retry-after": "-3"}, None, id="negative"),
        pytest.param({"retry-after": "inf"}, None, id="endless"),
        pytest.param({"retry-after": "nan"}, None, id="nan"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers, NOW) == seconds
    assert judged(429, headers).wait_seconds == seconds


def test_waits_double_are_capped_and_spread() -> None:
    assert [backoff_seconds(attempt, 1.0) for attempt in (1, 2, 3, 4, 10, 10_000)] == [0.5, 1, 2, 4, 20, 20]
    assert backoff_seconds(3, 0.0) == 1.0
