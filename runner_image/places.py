"""Where things are inside a sandbox: one frozen set of paths, so that tests can move them."""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Places:
    """Paths of one sandbox, as the runner sees them."""

    data: Path = Path("/mnt/data")
    """The session's file store: inputs arrive here, outputs leave from here."""

    workspace: Path = Path("/workspace")
    """The repository being worked on; the agent sees it under the same path."""

    outputs: Path = Path("/outputs")
    """Where the agent puts files that are meant for the user."""

    state: Path = Path("/run/claude-code")
    """The runner's own files; never visible to the agent."""

    temporary: Path = Path("/tmp")
    """The agent's folder for what nobody keeps, where its wall does not make it one; nothing of the runner lies there."""

    @property
    def socket(self) -> Path:
        """Where the runner waits for exchanges."""
        return self.state / "runner.sock"

    @property
    def model_socket(self) -> Path:
        """Where the agent's CLI reaches the model relay; bound into the wall."""
        return self.state / "relay" / "model.sock"

    @property
    def agent_config(self) -> Path:
        """Configuration directory of the agent's CLI, with its transcripts; kept between turns."""
        return self.state / "agent"

    @property
    def scratch(self) -> Path:
        """The runner's git directory for snapshots; the repository's own configuration is never in force there."""
        return self.state / "scratch.git"


def bubblewrap() -> Path | None:
    """Return the bubblewrap binary of this sandbox, or None."""
    found = shutil.which("bwrap")
    return Path(found) if found else None


def agent_cli() -> Path:
    """Return the CLI that the agent SDK bundles, without importing the SDK."""
    found = importlib.util.find_spec("claude_agent_sdk")
    folders = list(found.submodule_search_locations or ()) if found else []
    return Path(folders[0] if folders else "/nonexistent") / "_bundled" / "claude"
