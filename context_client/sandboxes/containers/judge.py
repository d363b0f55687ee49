"""Three judgements about what an engine says: may it be used, may the image be used, and why did a container end. Pure."""

from collections.abc import Mapping
from typing import Any

from context_client.size import MEBIBYTE

from .settings import ContainerLimits

Record = Mapping[str, Any]

_NEEDED: Mapping[str, str] = {
    "MemoryLimit": "limit memory",
    "PidsLimit": "limit the number of processes",
    "CpuCfsQuota": "limit the processor",
}
"""Keys of the engine's description: without one, the engine would leave that limit out and only print a warning."""


def engine_shortcomings(info: Record, *, version: str, has_swap: bool) -> tuple[str, ...]:
    """Say what an engine cannot enforce and what to do about it; nothing where all is well.

    Args:
        info: How it describes itself.
        version: Its name and version.
        has_swap: Whether the machine swaps.
    """
    steps = [
        f"This engine cannot {what}: use cgroup version 2, or give its user that controller (systemd: Delegate=yes)."
        for key, what in _NEEDED.items()
        if info.get(key) is False
    ]
    if version.startswith("Podman"):
        # Tried with 4.3: modes of tmpfs and sizes of volumes are dropped without a word, /run and /var/tmp become writable.
        steps.append("Podman's Docker-compatible API leaves limits out without saying so: use Docker, or the local sandboxes.")
    if has_swap and info.get("SwapLimit") is False:
        steps.append("This engine cannot limit swap: use cgroup version 2, boot with swapaccount=1, or switch swap off.")
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    if not any(option.startswith("name=seccomp") and "unconfined" not in option for option in options):
        steps.append("This engine filters no system calls: switch its default seccomp profile on.")
    if info.get("OSType", "linux") != "linux":
        steps.append("This engine does not run Linux containers.")
    return tuple(steps)


def image_shortcomings(image: Record, limits: ContainerLimits) -> tuple[str, ...]:
    """Say why an image may not be used; nothing where it may.

    Args:
        image: What the engine knows about it.
        limits: Names the places that may be written.
    """
    volumes = (image.get("Config") or {}).get("Volumes") or {}
    strangers = sorted(volumes.keys() - limits.places.keys())
    if not strangers:
        return ()
    return (f"Build it without the volumes {strangers}: the engine would put them on its disk, without a limit.",)


def why_ended(state: Record, limits: ContainerLimits) -> str:
    """Say in a sentence why a container does not run any more.

    Args:
        state: The part `State` of its description.
        limits: What it might use.
    """
    if state.get("Running"):
        return "the process that watches over it was killed or misused from inside."
    if state.get("OOMKilled"):
        may = limits.memory_bytes // MEBIBYTE
        return (
            f"its processes and its files in memory needed more than the {may} MiB they may use together, "
            "so that the kernel killed its server. Work with smaller files, or raise the memory of sandboxes."
        )
    code = state.get("ExitCode")
    if code in (137, 143):
        return f"it was killed from outside, or its server from inside (exit status {code})."
    detail = f": {state['Error']}" if state.get("Error") else ""
    return f"its server stopped by itself (exit status {code}){detail}."
