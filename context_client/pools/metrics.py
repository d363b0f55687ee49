"""Figures of session pools: what was asked, what it took, and what the pools say about it in their headers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_TIMINGS: Mapping[str, str] = {
    "x-ms-allocation-time": "allocation",
    "x-ms-preparation-time": "preparation",
    "x-ms-execution-request-time": "execution_request",
    "x-ms-execution-read-response-time": "execution_read_response",
    "x-ms-container-execution-duration": "container_execution",
    "x-ms-total-execution-service-time": "total_execution_service",
    "x-ms-overall-execution-time": "overall_execution",
}
"""Headers that carry milliseconds; code-interpreter pools send them, custom-container pools need not."""

_BOUNDS: Sequence[float] = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 220.0, 1801.0)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A sum of durations."""

    count: int = 0
    """How many there were."""

    seconds: float = 0.0
    """All together."""

    longest_seconds: float = 0.0
    """The longest."""

    def plus(self, seconds: float) -> "Measured":
        """Add one."""
        return Measured(count=self.count + 1, seconds=self.seconds + seconds, longest_seconds=max(self.longest_seconds, seconds))


@dataclass(frozen=True, kw_only=True)
class PoolFigures:
    """What is known of one pool since the start."""

    pool: str
    """Its name in the settings."""

    region: str
    """Where it is."""

    max_sessions: int
    """How many sessions it may have."""

    held: int
    """Slots that our sessions hold now, cooldown included."""

    busy: int
    """Sessions with a call under way."""

    most_held: int
    """The most that were held at a time."""

    seconds: float
    """For how long this is counted: `placed / seconds` are the arrivals for which `capacity.py` plans."""

    calls: Measured
    """Calls that were answered, from sending to the head of the answer."""

    buckets: Mapping[float, int]
    """Calls by upper bound in seconds, each in the first that fits; the rest is beyond the last."""

    placed: int
    """Sessions that got a slot here."""

    verdicts: Mapping[str, int]
    """Refusals and failures by kind: full, throttled, token, role, identifier, away, cut, too_large."""

    timings: Mapping[str, Measured]
    """What the pool's own timing headers say, by phase."""

    new_allocations: int
    """Answers that said `X-Ms-New-Allocation: true`."""

    allocation_retries: int
    """Sum of `X-Ms-Allocation-Retries`."""

    waited: Measured
    """Sessions that got their slot here after they had to wait, and for how long."""

    @property
    def troubles(self) -> int:
        """How often it refused, failed, or let a session wait."""
        return self.waited.count + sum(self.verdicts.values())

    def in_words(self) -> str:
        """Say it in one line, for a log."""
        name = f"{self.pool} ({self.region})" if self.region else self.pool
        words = [f"{self.held} of {self.max_sessions} slots held ({self.busy} busy, at most {self.most_held}), {self.placed} placed"]
        words.append(f"{self.waited.count} had to wait ({self.waited.seconds:.1f} s in all, at most {self.waited.longest_seconds:.1f} s)")
        words.append(f"{self.calls.count} calls in {self.calls.seconds:.1f} s (at most {self.calls.longest_seconds:.2f} s)")
        words += [f"{kind}: {count}" for kind, count in sorted(self.verdicts.items())]
        if self.new_allocations or self.allocation_retries:
            words.append(f"{self.new_allocations} new allocations, {self.allocation_retries} retries of the pool's own")
        words += [f"{phase}: {time.seconds / time.count:.3f} s in the mean of {time.count}" for phase, time in sorted(self.timings.items())]
        return f"session pool {name}: {'; '.join(words)}"


@dataclass
class PoolCounts:
    """Counters of one pool."""

    calls: Measured = Measured()
    placed: int = 0
    most_held: int = 0
    new_allocations: int = 0
    allocation_retries: int = 0
    waited: Measured = Measured()
    buckets: dict[float, int] = field(default_factory=lambda: dict.fromkeys(_BOUNDS, 0))
    verdicts: dict[str, int] = field(default_factory=dict)
    timings: dict[str, Measured] = field(default_factory=dict)

    def answered(self, seconds: float, headers: Mapping[str, str]) -> None:
        """Count an answer and read its headers, which a hostile container may have written: only numbers are taken."""
        self.calls = self.calls.plus(seconds)
        bound = next((bound for bound in _BOUNDS if seconds <= bound), None)
        if bound is not None:
            self.buckets[bound] += 1
        for header, name in _TIMINGS.items():
            milliseconds = _number(headers.get(header))
            if milliseconds is not None:
                self.timings[name] = self.timings.get(name, Measured()).plus(milliseconds / 1000)
        self.new_allocations += headers.get("x-ms-new-allocation", "").lower() == "true"
        self.allocation_retries += int(_number(headers.get("x-ms-allocation-retries")) or 0)

    def refused(self, verdict: str) -> None:
        """Count a refusal or a failure."""
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value <= 86_400_000 else None
