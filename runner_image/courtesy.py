"""Leaves the processor to the service when both want it.

Linux groups processes by session when it shares out the processor (autogroups, see sched(7)), and niceness counts only within such a
group. A sandbox has many sessions, so nice alone would give each of them as much as the service has. A session may lower its own group.
"""

from contextlib import suppress
from pathlib import Path

NICENESS = 15
GROUP = "/proc/self/autogroup"


def step_back() -> None:
    """Lower the group of this session; without effect on a kernel that does not group by session."""
    with suppress(OSError):
        Path(GROUP).write_text(str(NICENESS), encoding="ascii")
