"""Finds containers that nobody needs any more: their service is gone, whatever it died of.

A service holds a lock on its run directory for life, and names that directory in a label. A container normally ends by
itself when its service does (see `inside.py`); what is left then is an ended container, or one whose watcher hostile
code has killed.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from context_client.sandboxes.rundir import is_held

from .plan import LABEL_OWNER, LABEL_PLACE, Ownership

_NEVER_STARTED_SECONDS = 600.0

Verdict = Literal["keep", "orphan", "ask when it ended"]


def this_place() -> str:
    """Name this boot and mount namespace: where a path means to others what it means to us; blocks for a moment."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}:{Path('/proc/self/ns/mnt').readlink()}"


def judge_container(
    record: Mapping[str, Any], *, ours: Ownership, known: Collection[str], lives: Callable[[str], bool], now: datetime
) -> Verdict:
    """Decide about one container of our instance.

    Args:
        record: From the engine's listing.
        ours: Who asks.
        known: Names of the containers that the asking service has or is starting.
        lives: Says whether the owner of a run directory lives; asked for this place only.
        now: The time.
    """
    marks = record.get("Labels") or {}
    owner = str(marks.get(LABEL_OWNER, ""))
    if marks.get(LABEL_PLACE) == ours.place:
        if owner == ours.owner:
            names = {str(name).lstrip("/") for name in record.get("Names") or ()}
            return "keep" if names & set(known) else "orphan"
        return "keep" if lives(owner) else "orphan"
    match record.get("State"):  # another boot or namespace: its owner cannot be asked, but a living one removes what ended
        case "exited" | "dead":
            return "ask when it ended"
        case "created":
            age = now - datetime.fromtimestamp(float(record.get("Created") or now.timestamp()), UTC)
            return "orphan" if age.total_seconds() > _NEVER_STARTED_SECONDS else "keep"
        case _:
            return "keep"


def owner_lives(directory: str) -> bool:
    """Say whether a service still holds its run directory; in doubt it does. Blocks for a moment."""
    return is_held(Path(directory))


def ended_before(state: Mapping[str, Any], moment: datetime) -> bool:
    """Say whether a container ended before a moment.

    Args:
        state: The part `State` of its description.
        moment: An aware time.
    """
    finished = str(state.get("FinishedAt", ""))[:19]  # engines differ in what follows the seconds; all of them say UTC
    try:
        return not state.get("Running") and datetime.fromisoformat(finished).replace(tzinfo=UTC) < moment
    except ValueError:
        return False
