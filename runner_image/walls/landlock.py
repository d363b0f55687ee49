"""The wall of Landlock and seccomp, for hardened containers where no namespace can be made.

Nothing is mounted, so paths are the real ones, and what is not within reach still exists: names, sizes and times of files whose path is
known can be asked for, and the command lines of all processes can be read. Their contents, memory, environments and descriptors cannot.
What Landlock does not govern is closed elsewhere: sockets other than Unix ones by the filter of `launcher`, the runner's own Unix
sockets by `runner_image.strangers`. See docs/decisions/0014.
"""

import asyncio
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner_image.errors import WallUnavailable
from runner_image.places import Places, agent_cli
from runner_image.walls import launcher
from runner_image.walls.wall import HIDDEN, LINKS, PASSED, SYSTEM, View, base_environment
from workflow_schemas.walls import GUARDS, WallFacts

_DEVICES: Sequence[str] = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")

Rule = tuple[str, str]
"""A path, and the name of what may be done below it (`launcher.RIGHTS`)."""


@dataclass(frozen=True, kw_only=True)
class LandlockWall:
    """A domain for the CLI, and a tighter one for each command."""

    places: Places
    """Where things are, on both sides of the wall."""

    abi: int
    """Version of Landlock in the kernel."""

    why_not_stronger: str = ""
    """Why this sandbox has no namespaces."""

    @property
    def view(self) -> View:
        """Where things are behind it: where they really are."""
        places = self.places
        return View(
            workspace=str(places.workspace),
            outputs=str(places.outputs),
            config=str(places.agent_config),
            home=str(places.state / "home"),
            temporary=str(places.temporary),
            model_socket=str(places.model_socket),
            scratch=str(places.scratch),
            shell=str(places.state / "shell"),
        )

    def describe(self) -> WallFacts:
        """Say what separates the agent, for the manifest and the receipt."""
        words = (
            f"Landlock (version {self.abi}) and seccomp: own files, signals and abstract sockets, no network, no view into others' memory; "
            "every shell command in a tighter domain of its own; names of processes and files outside can be seen"
        )
        guards = tuple(GUARDS["landlock"])
        return WallFacts(level="landlock", kind="Landlock", guards=guards, words=words, why_not_stronger=self.why_not_stronger)

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
        view = self.view
        Path(self._commands_temporary()).mkdir(mode=0o700, parents=True, exist_ok=True)
        rules = _system_rules()
        rules += _around(self.places.workspace, hidden, "own" if writable else "run")
        rules += [(view.outputs, "own" if writable else "run"), (view.home, "own"), (view.temporary, "write")]
        if scratch is not None:
            rules.append((str(scratch), "write"))
        if agent:
            rules += [(view.config, "write"), (str(agent_cli()), "run"), (view.shell, "run"), (launcher.__file__, "read")]
        specification = {"folder": view.workspace, "environment": dict(environment), "passed": PASSED, "rules": rules}
        return [*_empty_environment(PASSED if agent else ()), *_launched(specification), *program]

    def install(self, environment: Mapping[str, str]) -> Path:
        """Write the program that the agent SDK starts in place of the CLI, and return its path."""
        view = self.view
        shutil.rmtree(view.home, ignore_errors=True)
        Path(view.shell).write_text(self._shell_script(), encoding="utf-8")
        Path(view.shell).chmod(0o755)
        line = self.command([str(agent_cli())], environment={**environment, "CLAUDE_CODE_SHELL_PREFIX": view.shell}, agent=True)
        told = [f'{name}="${{{name}:-}}"' for name in PASSED]
        wrapper = self.places.state / "cli"
        wrapper.write_text(f'#!/bin/sh\nexec env {" ".join(told)} {shlex.join(line)} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        return wrapper

    def _shell_script(self) -> str:
        """Return the program that the CLI puts before each shell command; the command is its first argument.

        The CLI opens a socket for messages to the agent, in the folder for temporary files or not at all, and keeps the key to it with its
        sessions. A command that had both would speak to the agent as if it were a person. So no socket can be made in that folder, and of
        the CLI's configuration a command reads only what the CLI has it read.
        """
        view = self.view
        rules = [*_system_rules(), (f"{view.config}/shell-snapshots", "read"), (view.temporary, "write")]
        rules += [(place, "own") for place in (view.workspace, view.outputs, view.home)]
        told = {"TMPDIR": self._commands_temporary()}
        specification = {"folder": ".", "environment": told, "hidden": HIDDEN, "rules": rules}
        return f'#!/bin/sh\nexec {shlex.join(_launched(specification))} /bin/bash -c "$1"\n'

    def _commands_temporary(self) -> str:
        """Return where commands put temporary files: where they may make Unix sockets, which many a test needs."""
        return f"{self.view.home}/tmp"


async def find_landlock_wall(places: Places, *, why_not_stronger: str = "") -> LandlockWall:
    """Return the wall after trying it out.

    Args:
        places: Where things are.
        why_not_stronger: Why this sandbox has no namespaces, for whoever demands them.

    Raises:
        WallUnavailable: This kernel or container does not offer what the wall is built of.
    """
    if os.geteuid() == 0:
        raise WallUnavailable("root is not kept in by Landlock alone; the sandbox needs a non-root user")
    abi = launcher.landlock_abi()
    if abi < launcher.NEEDED_ABI:
        found = f"this kernel offers version {abi} of Landlock" if abi else "this kernel or container offers no Landlock"
        raise WallUnavailable(f"{found}, and version {launcher.NEEDED_ABI} (Linux 6.12) is needed")
    if not launcher.machine_is_known():
        raise WallUnavailable("the filter of system calls is not known for this kind of processor")
    wall = LandlockWall(places=places, abi=abi, why_not_stronger=why_not_stronger)
    script = 'grep -q "^Seccomp_filters:" /proc/self/status && ! ls "$0" 2> /dev/null'
    line = await asyncio.to_thread(wall.command, ["/bin/sh", "-c", script, str(places.state)], environment=base_environment(wall.view))
    process = await asyncio.create_subprocess_exec(
        *line, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise WallUnavailable(f"Landlock does not hold in this sandbox ({said.decode(errors='replace').strip()[:300]})")
    launcher.hide_own_memory()  # a second line: the wall itself keeps the agent from it
    return wall


def _launched(specification: Mapping[str, object]) -> list[str]:
    return [str(Path(sys.executable).resolve()), "-I", "-S", launcher.__file__, json.dumps(specification)]


def _empty_environment(passed: Sequence[str]) -> list[str]:
    """Return the words that start the launcher with nothing of our environment; it may hold a key."""
    names = [*passed, "LD_LIBRARY_PATH"]
    return ["/usr/bin/env", "-i", *(f"{name}={os.environ[name]}" for name in names if name in os.environ)]


def _system_rules() -> list[Rule]:
    rules = [(path, "run") for path in (*SYSTEM, *LINKS, sys.base_prefix)]
    rules += [(f"/dev/{name}", "device") for name in _DEVICES]
    # named semaphores have no other place than /dev/shm; a program that may not read a file of /etc, where others find none, gives up
    return [*rules, ("/dev/shm", "write"), ("/proc", "read"), ("/etc", "read")]


def _around(folder: Path, hidden: Sequence[Path], right: str) -> list[Rule]:
    """Return rules for a folder without some of what is in it: rules can only add, so everything beside is named."""
    if not hidden:
        return [(str(folder), right)]
    return [(str(folder), "list"), *((str(path), right) for path in _beside(folder, frozenset(hidden)))]


def _beside(folder: Path, hidden: frozenset[Path]) -> Iterator[Path]:
    above = {parent for path in hidden for parent in path.parents}
    for path in folder.iterdir():
        if path in above and not path.is_symlink():
            yield from _beside(path, hidden)
        elif path not in hidden:
            yield path
