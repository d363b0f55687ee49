"""The table at the end of the fault runs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.faults.judging import Verdict

COLUMNS = (
    "kind", "runs", "took place", "completed", "ended with words", "lost", "doubled", "unfinished", "left behind", "repeated model calls",
    "bad polls", "p50 s", "max s",
)  # fmt: skip


def render(verdicts: Iterable[Verdict]) -> str:
    """Return one line for each kind of fault, and one for all."""
    by_kind: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_kind[verdict.fault.kind].append(verdict)
    rows = [_row(kind, found) for kind, found in sorted(by_kind.items())]
    rows.append(_row("all", [verdict for found in by_kind.values() for verdict in found]))
    widths = [max(len(str(row[column])) for row in [COLUMNS, *rows]) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(_cell(value, width) for value, width in zip(row, widths, strict=True)) for row in [COLUMNS, *rows])


def _row(kind: str, found: Sequence[Verdict]) -> tuple[str, ...]:
    seconds = sorted(verdict.seconds for verdict in found)
    counts = (
        len(found),
        sum(verdict.happened for verdict in found),
        sum(verdict.status == "Completed" for verdict in found),
        sum(verdict.status == "Failed" for verdict in found),
        *(sum(bool(getattr(verdict, name)) for verdict in found) for name in ("lost", "doubled", "unfinished", "left_behind", "repeated")),
        sum(bool(verdict.polls) for verdict in found),
    )
    return (kind, *map(str, counts), f"{seconds[len(seconds) // 2]:.1f}", f"{seconds[-1]:.1f}")


def _cell(value: str, width: int) -> str:
    return value.ljust(width) if not value[:1].isdigit() else value.rjust(width)
