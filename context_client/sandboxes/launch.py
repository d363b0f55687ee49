"""Turns a runtime and limits into the words that start one sandbox process."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .bubblewrap import SYNTHETIC_FILES, Source, sandbox_arguments
from .launcher import STAGE
from .limits import SandboxLimits
from .runtime import Runtime

_USERS_FROM = 900_000
_USERS = 90_000


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a sandbox process is started."""

    words: tuple[str, ...]
    """The command: a small program that becomes bubblewrap."""

    environment: Mapping[str, str]
    """Environment of that small program; nothing but what its interpreter may need to load."""

    user: int | None
    """The user id the sandbox runs as on the host, or None for the service's own."""

    group: Path | None = None
    """The control group of its processes, which ends with it."""


def write_synthetic_files(directory: Path) -> tuple[Source, ...]:
    """Write the sandbox's own files of /etc below a directory; blocks for a moment."""
    sources = []
    for name, text in SYNTHETIC_FILES.items():
        path = directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        sources.append(Source(host=str(path), inside=f"/etc/{name}"))
    return tuple(sources)


def plan_launch(
    *,
    runtime: Runtime,
    etc: tuple[Source, ...],
    limits: SandboxLimits,
    slot: int,
    python: str,
    server_words: tuple[str, ...],
    group: Path | None = None,
) -> Launch:
    """Plan the start of one sandbox.

    Args:
        runtime: What this machine offers.
        etc: What `write_synthetic_files` gave.
        limits: What the sandbox may use.
        slot: A number no other sandbox of this service has now; as root it becomes a user id.
        python: The program inside.
        server_words: Its arguments.
        group: The control group that its processes join.
    """
    user = _USERS_FROM + (os.getpid() * 61 + slot) % _USERS if os.geteuid() == 0 else None
    sources = (*runtime.sources, *etc)
    stage: list[list[str]] = []
    if user is not None:
        stage = [[source.host, f"s{index}"] for index, source in enumerate(sources)]
        sources = tuple(replace(source, host=f"{STAGE}/s{index}") for index, source in enumerate(sources))
    visible = {original.inside: shown.host for original, shown in zip((*runtime.sources, *etc), sources, strict=True)}
    bwrap = next(path for inside, path in visible.items() if inside.endswith("/bwrap/bwrap"))
    libraries = next((path for inside, path in visible.items() if inside.endswith("/bwrap/lib")), None)
    arguments = sandbox_arguments(
        bwrap=bwrap,
        sources=sources,
        links=runtime.links,
        limits=limits,
        python=python,
        server_words=server_words,
    )
    plan = {
        "arguments": arguments,
        "environment": {"LD_LIBRARY_PATH": libraries} if libraries else {},
        "parent": os.getpid(),
        "niceness": limits.niceness,
        "limits": {"RLIMIT_NOFILE": limits.open_files, "RLIMIT_CORE": 0},
        "user": user,
        "stage": stage,
        "group": str(group / "cgroup.procs") if group else None,
    }
    loader = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    launcher = str(Path(__file__).with_name("launcher.py"))
    return Launch(words=(sys.executable, "-I", "-S", launcher, json.dumps(plan)), environment=loader, user=user, group=group)
