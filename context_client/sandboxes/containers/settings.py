"""What an administrator may choose for containers, what one container may use, and what a receipt says about it.

| what                           | enforced by                                                                     |
|--------------------------------|---------------------------------------------------------------------------------|
| memory, files in memory too    | the kernel: memory cgroup without swap; over it, it kills processes inside      |
| files in bytes and number      | the kernel: each writable place is a tmpfs, or a volume on disk with a quota    |
| CPU                            | the kernel: CPU cgroup, and a smaller share than the service's where both want it |
| number of processes            | the kernel: pids cgroup                                                         |
| open files, core dumps         | the kernel: rlimits                                                             |
| what the container prints      | the engine: one log file of a megabyte                                          |
| time of one execution          | the server inside                                                               |
| life without use               | the provider; and a container ends by itself when its service is gone           |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from context_client.sandboxes.limits import WRITABLE_PLACES, Sized
from context_client.size import MEBIBYTE

DEFAULT_IMAGE = "claude-code-runner:dev"
SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True, kw_only=True)
class ContainerLimits(Sized):
    """What one container may use."""

    places: Mapping[str, int] = field(default_factory=lambda: WRITABLE_PLACES)
    """Size in bytes of each writable place; every place of `WRITABLE_PLACES` must be there."""

    on_disk: frozenset[str] = frozenset()
    """Places that are volumes on disk instead of memory; needs an engine whose disk has project quotas (xfs, pquota)."""

    memory_bytes: int = 2048 * MEBIBYTE
    """Memory of all processes and of all files in memory together; there is no swap beyond it."""

    cpus: float = 2.0
    """Processors; 0.25 is a quarter of one."""

    processes: int = 512
    """Processes and threads at the same time."""

    files: int = 500_000
    """Files and directories in each place that lives in memory."""

    open_files: int = 4096
    """Open files of one process."""

    def __post_init__(self) -> None:
        if WRITABLE_PLACES.keys() ^ self.places.keys():
            raise ValueError(f"These places need a size, no more and no fewer: {sorted(WRITABLE_PLACES)}.")
        if strangers := self.on_disk - self.places.keys() | self.on_disk & {SHARED_MEMORY}:
            raise ValueError(f"These places cannot be on disk: {sorted(strangers)}.")
        amounts = (*self.places.values(), self.memory_bytes, self.processes, self.files, self.open_files, self.cpus)
        if not all(math.isfinite(amount) and amount > 0 for amount in amounts):
            raise ValueError("Every limit needs a number above zero: the engine takes zero for 'without limit'.")


@dataclass(frozen=True, kw_only=True)
class ContainerSandboxSettings:
    """What an administrator may choose for sandboxes in containers."""

    instance_id: str
    """Labels our containers; services of other instances on the same engine never touch them."""

    image: str = DEFAULT_IMAGE
    """Name or id of the image; it must be there already, none is ever pulled."""

    engine_url: str | None = None
    """`unix:///…` of the engine's socket; by default what `DOCKER_HOST` names, else the usual one."""

    python: str = "python3"
    """The image's interpreter that can import `runner_image`."""

    user: int = 10001
    """User and group id inside; never 0. Our image has a name for this one; any other works, but has none."""

    expected: Mapping[str, str] = field(default_factory=dict)
    """What `GET /health` must say, by key (`version`, for instance); anything else is refused."""

    maximum: int = 20
    """How many sandboxes may run at the same time."""

    concurrent_starts: int = 4
    """How many containers the engine is asked to start at the same time."""

    cooldown_seconds: float = 300.0
    """How long a sandbox may idle before it is destroyed; 300 on the platform."""

    spare_idle_seconds: float = 15.0
    """How long a sandbox must have idled to be ended early when all places are taken and another session needs one."""

    execution_timeout_seconds: float = 100.0
    """Time limit of one execution inside."""

    call_timeout_seconds: float = 600.0
    """How long one call to a sandbox may take."""

    start_timeout_seconds: float = 60.0
    """How long a container may take until its server answers."""

    engine_patience_seconds: float = 10.0
    """For how long an engine that does not answer is asked again."""

    sweep_seconds: float = 60.0
    """How often containers that nobody owns any more are looked for."""

    prewarm_runner: bool = True
    """Start the runner with the sandbox, so that its slow imports are done before the work arrives."""

    limits: ContainerLimits = field(default_factory=ContainerLimits)
    """What each sandbox may use."""

    run_directory: Path | None = None
    """Where sockets are kept; the engine must see it under the same path. By default the user's runtime directory."""

    def __post_init__(self) -> None:
        if self.user <= 0:
            raise ValueError("A sandbox never runs as root: 'user' needs an id above zero.")


@dataclass(frozen=True, kw_only=True)
class ContainerFacts:
    """What kind of sandbox the work ran in, for a receipt."""

    kind: Literal["container"]
    """How it is made."""

    version: str
    """The engine's name and version."""

    image: str
    """The image's name, as the administrator wrote it."""

    image_id: str
    """The image's content id; all containers of this provider are made from it, whatever the name points to later."""

    network: Literal["none"]
    """What it can reach."""

    separate_user: bool
    """Whether it runs as another user than the service."""

    limits: ContainerLimits
    """What it may use."""

    enforced: dict[str, str]
    """What enforces each limit."""

    def in_words(self) -> str:
        """Say it in one line."""
        user = "a system user of its own" if self.separate_user else "the service's system user"
        limits = f"{self.limits.memory_bytes // MEBIBYTE} MiB, {self.limits.cpus:g} CPU"
        return f"container of {self.image} ({self.image_id[:19]}) on {self.version}, no network, {user}, {limits}"
