"""Control groups that hold local sandboxes to a share of the processor, where this service may make any.

As root it mostly may. As another user it may below a systemd service with `Delegate=cpu` and `DelegateSubgroup=`; a group that has
processes of its own (ours) cannot hand the controller on, so on version 2 the new ones stand beside ours. There the limits of our own group
do not reach them, so each gets bounds of memory and processes with its share. All of it blocks for a moment.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import SandboxStartFailed
from .limits import SandboxLimits

_PREFIX = "claude-code-sandbox-"
_PERIOD_MICROSECONDS = 100_000
_LEAST_MICROSECONDS = 1_000  # the kernel takes no less
_OURS = 16  # processes outside of what the sandbox may count as its own
_REMOVAL_SECONDS = 1.0
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class ControlGroups:
    """A place where groups can be made."""

    parent: Path
    """Directory in which they are."""

    is_unified: bool
    """Whether it is version 2."""

    def make(self, name: str, limits: SandboxLimits) -> Path:
        """Make a group and give its directory.

        Args:
            name: Ours alone among the sandboxes of this process.
            limits: Must say how many processors its processes have together.

        Raises:
            SandboxStartFailed: The kernel refuses.
        """
        group = self.parent / f"{_PREFIX}{os.getpid()}-{name}"
        cpus = limits.cpus or 0
        quota = max(round(cpus * _PERIOD_MICROSECONDS), _LEAST_MICROSECONDS)
        made = False
        try:
            group.mkdir()
            made = True
            if self.is_unified:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
                _bound(group / "memory.max", limits.memory_bytes + sum(limits.places.values()))
                _bound(group / "pids.max", limits.processes + _OURS)
            else:
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError as error:
            if made:
                remove(group)
            raise SandboxStartFailed(f"The sandbox could not be held to {cpus:g} CPU: {error}. Ask for another share.") from error
        return group


def _bound(file: Path, most: int) -> None:
    if file.exists():  # else our own group has no such bound either
        file.write_text(str(most))


def remove(group: Path) -> None:
    """Remove a group whose processes have ended; the kernel may take a moment to notice."""
    until = time.monotonic() + _REMOVAL_SECONDS
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                return  # the next start finds it
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def find_groups() -> ControlGroups | None:
    """Look where groups can be made, by making one, and remove what dead services have left; None where they cannot."""
    for groups in _candidates():
        trial = groups.parent / f"{_PREFIX}{os.getpid()}-trial"
        try:
            trial.mkdir()
        except OSError:
            continue
        usable = (trial / ("cpu.max" if groups.is_unified else "cpu.cfs_quota_us")).exists() and os.access(trial / "cgroup.procs", os.W_OK)
        remove(trial)
        if usable:
            _sweep(groups.parent)
            return groups
    return None


def _candidates() -> list[ControlGroups]:
    """Give the places by what the kernel says about its mounts and about this process."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        paths = dict(_own_paths())
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            before, _, after = line.partition(" - ")
            root, mounted = before.split()[3:5]
            kind, _, options = after.split()[:3]
            if kind == "cgroup2" and "" in paths:
                own = _below(mounted, root, paths[""])
                found.append(ControlGroups(own if own == Path(mounted) else own.parent, is_unified=True))
            elif kind == "cgroup" and "cpu" in options.split(",") and "cpu" in paths:
                found.append(ControlGroups(_below(mounted, root, paths["cpu"]), is_unified=False))
    return found


def _own_paths() -> list[tuple[str, str]]:
    """Give this process's group by controller; version 2 has one for all, under the empty name."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines())
    return [(controller, path) for _, controllers, path in lines for controller in controllers.split(",")]


def _below(mounted: str, root: str, path: str) -> Path:
    """Give a group's directory; a mount may show only a part of the tree."""
    within = path.removeprefix(root) if root != "/" else path
    return Path(mounted, within.lstrip("/"))


def _sweep(parent: Path) -> None:
    for group in parent.glob(f"{_PREFIX}*"):
        owner = group.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):  # not empty: it is not ours to end
                group.rmdir()
