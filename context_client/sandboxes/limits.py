"""What one local sandbox may use, and what enforces it.

| what                     | enforced by                                                                    |
|--------------------------|--------------------------------------------------------------------------------|
| files, in bytes          | the kernel: each writable place is a tmpfs of its own size, all else read-only |
| files, in number         | the watchdog, once a second: over it the sandbox is ended                      |
| memory of processes      | the watchdog, once a second: over it the sandbox is ended                      |
| number of processes      | the kernel (RLIMIT_NPROC inside the sandbox's user namespace), and the watchdog |
| open files, core dumps   | the kernel (RLIMIT_NOFILE, RLIMIT_CORE)                                        |
| CPU                      | a lower priority; a share only if asked for, by the kernel, where `groups` may |
| time of one execution    | the server inside                                                              |
| life without use         | the provider: ended after the cooldown                                         |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self, cast

from context_client.size import MEBIBYTE, SandboxSize

WRITABLE_PLACES: Mapping[str, int] = MappingProxyType(
    {
        "/mnt/data": 640 * MEBIBYTE,
        "/workspace": 768 * MEBIBYTE,
        "/outputs": 256 * MEBIBYTE,
        "/run/claude-code": 512 * MEBIBYTE,
        "/tmp": 256 * MEBIBYTE,
        "/home/agent": 64 * MEBIBYTE,
        "/dev/shm": 64 * MEBIBYTE,
    }
)
"""The only places a sandbox can write to, with their sizes in bytes; they live in memory and vanish with it."""

_PAGE = 4096  # a tmpfs counts in pages, and rounds up


class Sized:
    """Limits of a sandbox, wherever it is made, whose size a caller may choose."""

    cpus: float | None
    memory_bytes: int
    processes: int
    places: Mapping[str, int]

    @property
    def size(self) -> SandboxSize:
        """What of it a caller may choose."""
        disk = sum(self.places.values())
        return SandboxSize(cpus=self.cpus, memory_bytes=self.memory_bytes, processes=self.processes, disk_bytes=disk)

    def sized(self, size: SandboxSize | None) -> Self:
        """Return the same limits with the size that a caller asks for; what it does not say stays.

        Args:
            size: How large.
        """
        if size is None:
            return self
        sized: Self = replace(
            cast(Any, self),  # whoever is one of these is a dataclass
            cpus=size.cpus or self.cpus,
            memory_bytes=size.memory_bytes or self.memory_bytes,
            processes=size.processes or self.processes,
            places=spread(self.places, size.disk_bytes),
        )
        return sized


@dataclass(frozen=True, kw_only=True)
class SandboxLimits(Sized):
    """What one sandbox may use."""

    places: Mapping[str, int] = field(default_factory=lambda: WRITABLE_PLACES)
    """Size in bytes of each writable place; every place of `WRITABLE_PLACES` must be there."""

    memory_bytes: int = 2048 * MEBIBYTE
    """Memory of all processes together, files not counted."""

    processes: int = 512
    """Processes and threads at the same time."""

    cpus: float | None = None
    """Processors; None for as much as an idle machine has. Held only where the service may make control groups."""

    files: int = 500_000
    """Files and directories in all writable places together."""

    open_files: int = 4096
    """Open files of one process."""

    niceness: int = 10
    """How much the sandbox's processes step back behind the service's."""

    def __post_init__(self) -> None:
        missing = WRITABLE_PLACES.keys() ^ self.places.keys()
        if missing:
            raise ValueError(f"These places need a size, no more and no fewer: {sorted(WRITABLE_PLACES)}.")


def spread(places: Mapping[str, int], disk_bytes: int | None) -> Mapping[str, int]:
    """Give each place its part of another sum, in the proportion in which they are; without a sum they stay.

    Args:
        places: Sizes in bytes, by place.
        disk_bytes: What they shall have together, in whole pages.
    """
    if disk_bytes is None:
        return places
    whole = sum(places.values())
    parts = {place: max(disk_bytes * size // whole // _PAGE * _PAGE, _PAGE) for place, size in places.items()}
    largest = max(parts, key=lambda place: parts[place])
    parts[largest] += max(disk_bytes // _PAGE * _PAGE - sum(parts.values()), 0)
    return MappingProxyType(parts)
