"""How long to wait before a model is asked again: pure arithmetic, clock and dice given by the caller."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 20.0


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read how long the upstream wants to be left alone, from ``retry-after-ms`` or ``retry-after``.

    Args:
        headers: headers of the answer, names in lower case.
        now: the time, with its zone; a date in ``retry-after`` is taken relative to it.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())


def backoff_seconds(attempt: int, dice: float, *, first: float = FIRST_WAIT_SECONDS) -> float:
    """Give the wait after an attempt that failed: doubling, capped, and spread so that many callers do not meet again.

    Args:
        attempt: number of the attempt that failed, from 1.
        dice: a random number from 0 up to 1.
        first: the longest first wait.
    """
    longest = min(LONGEST_WAIT_SECONDS, first * 2 ** min(attempt - 1, 16))
    return float(longest * (0.5 + 0.5 * dice))


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
