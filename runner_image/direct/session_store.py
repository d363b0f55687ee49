"""What the direct path remembers between two calls, in one small file of the runner's own."""

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner_image.places import Places

DEFAULT_TEAM = "default"
"""Name of the team when the caller gives none."""

_MAX_BYTES = 1024 * 1024


def direct_places() -> Places:
    """Return the usual places with a state folder of the direct path's own: a daemon in the same sandbox keeps its own files."""
    return Places(state=Places.state / "direct")


@dataclass
class SessionState:
    """A conversation that can be taken up again."""

    session_id: str
    """Session of the agent SDK; empty before the first message."""

    team: str = DEFAULT_TEAM
    """Whose conversation it is; another team begins one of its own."""

    initialized: bool = False
    """Whether `run_init` found everything in order."""

    conversation_turns: int = 0
    """Messages that were answered."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Whatever the caller wants to keep along."""


class SessionStore:
    """Keeps one :class:`SessionState` in a file."""

    def __init__(self, path: Path | str | None = None) -> None:
        """Name the file; nothing is read or written yet.

        Args:
            path: The file; by default `session.json` in the direct path's state folder.
        """
        self.path = Path(path) if path is not None else direct_places().state / "session.json"

    def load(self) -> SessionState | None:
        """Return the stored state; None when there is none or it cannot be read (:meth:`exists` tells these apart)."""
        try:
            with self.path.open("rb") as file:
                stored = json.loads(file.read(_MAX_BYTES))
            return _state(stored)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def save(self, state: SessionState) -> bool:
        """Store the state, whole or not at all; False when the file cannot be written."""
        temporary = ""
        try:
            text = json.dumps(asdict(state), indent=2)
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # made with mode 0600: nobody else's business
            descriptor, temporary = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except (OSError, TypeError, ValueError, RecursionError):
            if temporary:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink(missing_ok=True)
            return False
        return True

    def clear(self) -> bool:
        """Forget the state; False when the file is there and cannot be removed."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def exists(self) -> bool:
        """Say whether there is a file, readable or not."""
        return os.path.lexists(self.path)


def _state(stored: dict[str, Any]) -> SessionState:
    """Build a state from what was read; a field of another type makes the whole untrustworthy."""
    state = SessionState(
        session_id=stored["session_id"],
        team=stored.get("team", DEFAULT_TEAM),
        initialized=stored.get("initialized", False),
        conversation_turns=stored.get("conversation_turns", 0),
        metadata=stored.get("metadata", {}),
    )
    turns = state.conversation_turns
    fits = isinstance(state.session_id, str) and isinstance(state.team, str) and isinstance(state.initialized, bool)
    if not (fits and isinstance(turns, int) and not isinstance(turns, bool) and turns >= 0 and isinstance(state.metadata, dict)):
        raise ValueError("a field of the stored session has another type")
    return state
