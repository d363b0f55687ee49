"""The wall of namespaces: bubblewrap inside the sandbox.

The CLI gets its own process, mount, network, IPC and host-name spaces, with the workspace, the outputs folder, its configuration and one
model socket bound in; the runner's files and processes do not exist there. Each shell command gets a process space of its own without
the model socket. See docs/decisions/0003.
"""

import asyncio
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner_image.courtesy import GROUP, NICENESS
from runner_image.errors import WallUnavailable
from runner_image.places import Places, agent_cli, bubblewrap
from runner_image.walls.wall import HIDDEN, INSIDE, LINKS, PASSED, SYSTEM, View, base_environment
from workflow_schemas.walls import GUARDS, WallFacts

# every writable place has a size: a tmpfs without one holds half of the machine's memory
_TMP_BYTES = str(256 * 1024 * 1024)
_HOME_BYTES = str(64 * 1024 * 1024)
_CLI = "/opt/agent/claude"
_TOOLS = "/opt/agent/bin"


@dataclass(frozen=True, kw_only=True)
class BubblewrapWall:
    """Namespaces of its own for the CLI, and a process space for each command."""

    binary: Path
    """The bubblewrap binary."""

    places: Places
    """Where things are outside the wall."""

    @property
    def view(self) -> View:
        """Where things are behind it: always the same paths."""
        return INSIDE

    def describe(self) -> WallFacts:
        """Say what separates the agent, for the manifest and the receipt."""
        words = "bubblewrap: own processes, mounts, network, IPC and host name; every shell command in a process space of its own"
        return WallFacts(level="namespaces", kind="bubblewrap", guards=tuple(GUARDS["namespaces"]), words=words)

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
        """Return the command line that runs a program behind the wall; see `Wall`."""
        bind = "--bind" if writable else "--ro-bind"
        line = [*_without_environment(), str(self.binary)]
        # no new session: there is no terminal to keep away from, and the runner's session stands back for the service
        line += ["--unshare-all", "--die-with-parent", "--hostname", "agent"]
        line += _system_mounts()
        line += ["--proc", "/proc", "--dev", "/dev", "--dir", INSIDE.home, "--dir", "/run"]
        line += ["--size", _TMP_BYTES, "--tmpfs", "/tmp", "--size", _HOME_BYTES, "--tmpfs", INSIDE.home]
        line += ["--size", _HOME_BYTES, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        line += [bind, str(self.places.workspace), INSIDE.workspace, bind, str(self.places.outputs), INSIDE.outputs]
        if agent:
            line += ["--bind", str(self.places.agent_config), INSIDE.config, "--ro-bind", str(agent_cli()), _CLI]
            line += ["--ro-bind", str(self.binary.parent), _TOOLS, "--ro-bind", str(self._shell_file()), INSIDE.shell]
            line += ["--bind", str(self.places.model_socket.parent), str(Path(INSIDE.model_socket).parent)]
        line += self._covers(hidden)
        if scratch is not None:
            line += ["--bind", str(scratch), INSIDE.scratch]
        line += ["--chdir", INSIDE.workspace, "--remount-ro", "/", "--clearenv"]
        for name, value in environment.items():
            line += ["--setenv", name, value]
        return [*line, "--", *program]

    def install(self, environment: Mapping[str, str]) -> Path:
        """Write the wrapper that the agent SDK starts in place of the CLI, and return its path."""
        shell = self._shell_file()
        shell.write_text(_shell_script(), encoding="utf-8")
        shell.chmod(0o755)
        line = self.command([_CLI], environment={**environment, "CLAUDE_CODE_SHELL_PREFIX": INSIDE.shell}, agent=True)
        at = line.index("--clearenv") + 1
        quoted = [shlex.quote(word) for word in line]
        passed = [f'--setenv {name} "${{{name}:-}}"' for name in PASSED]
        wrapper = self.places.state / "cli"
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join([*quoted[:at], *passed, *quoted[at:]])} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        return wrapper

    def _covers(self, hidden: Sequence[Path]) -> Iterator[str]:
        for path in hidden:
            inside = str(INSIDE.workspace / path.relative_to(self.places.workspace))
            yield from ("--tmpfs", inside) if path.is_dir() else ("--ro-bind", "/dev/null", inside)

    def _shell_file(self) -> Path:
        return self.places.state / "shell"


async def find_bubblewrap_wall(places: Places) -> BubblewrapWall:
    """Return the wall after trying it out.

    Raises:
        WallUnavailable: bubblewrap is missing, or this sandbox does not let it start.
    """
    binary = bubblewrap()
    if binary is None:
        raise WallUnavailable("there is no bubblewrap in this sandbox")
    wall = BubblewrapWall(binary=binary, places=places)
    process = await asyncio.create_subprocess_exec(
        *wall.command(["/bin/sh", "-c", "test ! -e /run/claude-code"], environment=base_environment()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise WallUnavailable(
            f"bubblewrap does not start in this sandbox ({said.decode(errors='replace').strip()[:300]}); "
            "it needs a non-root user and user namespaces"
        )
    return wall


def _without_environment() -> list[str]:
    """Return the words that start bubblewrap with nothing of our environment.

    `--clearenv` empties that of the program behind the wall only. Bubblewrap itself is process 1 in there, and the agent can read
    `/proc/1/environ`, which shows what bubblewrap was started with: a model key, say, or a platform's identity.
    """
    libraries = os.environ.get("LD_LIBRARY_PATH")  # the bubblewrap of a Python package brings its library along
    return ["/usr/bin/env", "-i", *([f"LD_LIBRARY_PATH={libraries}"] if libraries else [])]


def _system_mounts() -> list[str]:
    mounts: list[str] = []
    for place in SYSTEM:
        if Path(place).exists():
            mounts += ["--ro-bind", place, place]
    for place in LINKS:
        path = Path(place)
        if path.is_symlink():
            mounts += ["--symlink", str(path.readlink()), place]
        elif path.is_dir():
            mounts += ["--ro-bind", place, place]
    return mounts


def _shell_script() -> str:
    """Return the program that the CLI puts before each shell command; the command is its first argument."""
    # the CLI's own messaging socket would let a command speak to the agent as if it were a person
    hidden = " ".join(f"-u {name}" for name in HIDDEN)
    line = (  # not `--unsetenv`: a command can read what bubblewrap itself was started with as /proc/1/environ
        f"/usr/bin/env {hidden} "
        f"{_TOOLS}/bwrap --die-with-parent --unshare-user --disable-userns --unshare-pid --unshare-ipc --dev-bind / / --proc /proc "
        f"--size 4096 --tmpfs /run --remount-ro /run --size 4096 --tmpfs /tmp/cc-socks --remount-ro /tmp/cc-socks"
    )
    return (
        "#!/bin/sh\n"
        f"{{ echo {NICENESS} > {GROUP}; }} 2>/dev/null\n"  # the CLI starts each command in a session of its own
        'own="${LD_LIBRARY_PATH:-}"\n'
        f"export LD_LIBRARY_PATH={_TOOLS}/lib\n"  # the bubblewrap of a Python package brings its library along
        f'exec {line} --ro-bind {INSIDE.config} {INSIDE.config} --setenv LD_LIBRARY_PATH "$own" -- /bin/bash -c "$1"\n'
    )
