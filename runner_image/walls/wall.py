"""What every wall promises, and where a program behind one finds its things.

Two walls, really. The outer one holds the agent's CLI: the workspace, the outputs folder, its configuration and one model socket are all
it reaches of the runner's things; it sees no memory, environment or descriptor of a process outside, and signals none. The inner one
holds each shell command: it can neither reach the CLI's pipes (and forge an event through `/proc/<pid>/fd`) nor call the model by itself.
A command's processes end with the command, and the agent's with the agent. See docs/decisions/0003 and 0014.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runner_image.places import Places
from workflow_schemas.walls import WallFacts

HIDDEN: Sequence[str] = (
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_UNIX_SOCKET",
)
"""Variables of the CLI that a shell command does not get."""

PASSED: Sequence[str] = ("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDE_CODE_SDK_READS_SESSION_STATE")
"""Variables that the agent SDK sets, and the CLI gets."""

SYSTEM: Sequence[str] = (
    "/usr",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/opt/python",
)
LINKS: Sequence[str] = ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")


@dataclass(frozen=True, kw_only=True)
class View:
    """Where a program behind a wall finds its things."""

    workspace: str = "/workspace"
    """The repository being worked on; programs start here."""

    outputs: str = "/outputs"
    """Files that are meant for the user."""

    config: str = "/agent"
    """Configuration directory of the agent's CLI."""

    home: str = "/home/agent"
    """An empty home."""

    temporary: str = "/tmp"
    """Where programs put what nobody keeps."""

    model_socket: str = "/run/model/model.sock"
    """Where the CLI reaches the model."""

    scratch: str = "/scratch"
    """The runner's git directory, for the scripts that are given it."""

    shell: str = "/opt/agent/shell"
    """Program that runs a shell command, its first argument, behind the inner wall."""


INSIDE = View()


class Wall(Protocol):
    """What separates the agent in this sandbox."""

    @property
    def places(self) -> Places:
        """Where things are outside the wall."""

    @property
    def view(self) -> View:
        """Where things are behind it."""

    def describe(self) -> WallFacts:
        """Say what separates the agent, for the manifest and the receipt."""

    def command(
        self,
        program: Sequence[str],
        *,
        environment: Mapping[str, str],
        agent: bool = False,
        writable: bool = True,
        scratch: Path | None = None,
        hidden: Sequence[Path] = (),
    ) -> list[str]:
        """Return the command line that runs a program behind the wall.

        Args:
            program: Command and arguments, by their paths behind the wall.
            environment: All environment variables the program gets.
            agent: Whether the agent's configuration, CLI and model socket are within reach.
            writable: Whether the workspace may be written.
            scratch: A folder of the runner that may be written as well, as `view.scratch`.
            hidden: Entries of the workspace that are covered up.
        """

    def install(self, environment: Mapping[str, str]) -> Path:
        """Write the program that the agent SDK starts in place of the CLI, and return its path."""


def base_environment(view: View = INSIDE) -> dict[str, str]:
    """Return the environment that every program behind the wall gets."""
    search = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": search, "HOME": view.home, "USER": "agent", "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": view.temporary}
    if Path("/opt/python").is_dir():
        environment["PATH"] = f"/opt/python/bin:{search}"
        environment["LD_LIBRARY_PATH"] = "/opt/python/lib"
    return environment
