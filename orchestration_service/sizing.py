"""How large a workflow wants its sandbox, and what the user should know of the one there is. Pure.

A size is asked for when the session is opened, and holds for a sandbox that is started then: docs/decisions/0016.
"""

from collections.abc import Iterable, Mapping

from context_client import SandboxSize
from orchestration_service.errors import PlanRefused
from workflow_schemas.properties import WorkflowProperties

_UNITS = (("Gi", 1024**3), ("Mi", 1024**2))
_LEAST_BYTES = 256 * 1024**2
"""Below that neither memory nor space are enough for any work: the agent's program alone takes most of it."""

_LEAST_CPUS = 0.05

_PROPERTIES: Mapping[str, str] = {
    "cpus": "sandbox_cpu",
    "memory_bytes": "sandbox_memory",
    "processes": "sandbox_processes",
    "disk_bytes": "sandbox_disk",
}
"""The workflow property behind each part of a size."""


def wanted_size(properties: WorkflowProperties) -> SandboxSize | None:
    """Return the size that a workflow asks for; None when it leaves it to the installation.

    Raises:
        PlanRefused: It is too small for any work.
    """
    amounts = {"sandbox_memory": properties.sandbox_memory, "sandbox_disk": properties.sandbox_disk}
    bytes_of = {name: _bytes(text) for name, text in amounts.items()}
    for name, value in bytes_of.items():
        if value is not None and value < _LEAST_BYTES:
            raise PlanRefused(
                f"An administrator has to correct the agent. The workflow property {name!r} is {amounts[name]!r}, too little for any work: "
                "ask for 256Mi at least."
            )
    if properties.sandbox_cpu is not None and properties.sandbox_cpu < _LEAST_CPUS:
        raise PlanRefused(
            f"An administrator has to correct the agent. The workflow property 'sandbox_cpu' is {properties.sandbox_cpu:g}, too little for "
            f"any work: ask for {_LEAST_CPUS:g} at least."
        )
    size = SandboxSize(
        cpus=properties.sandbox_cpu,
        memory_bytes=bytes_of["sandbox_memory"],
        processes=properties.sandbox_processes,
        disk_bytes=bytes_of["sandbox_disk"],
    )
    return None if size == SandboxSize() else size


def size_remarks(wanted: SandboxSize | None, granted: SandboxSize | None) -> tuple[str, ...]:
    """Say where the sandbox is not as large as the workflow wants it; nothing when it is, or when it wants nothing.

    Args:
        wanted: What the workflow asks for.
        granted: What the sandbox has, as far as its place says so and holds it to that.
    """
    if wanted is None:
        return ()
    if granted is None:
        words = wanted.in_words()
        return (
            f"The sandbox's place, such as a session pool, decides its size: what the workflow asks for ({words}) had no effect "
            f"({_named(wanted.said())}).",
        )
    asked, has = wanted.said(), granted.said()
    remarks = []
    if unheld := {name: words for name, words in asked.items() if name not in has}:
        remarks.append(
            f"This kind of sandbox cannot be held to {', '.join(unheld.values())}, which the workflow asks for ({_named(unheld)})."
        )
    if others := [name for name in asked if name in has and getattr(wanted, name) != getattr(granted, name)]:
        remarks.append(
            f"The sandbox of this conversation was started with {', '.join(has[name] for name in others)} and keeps that until it has been "
            f"idle for some minutes; the next one gets what the workflow asks for now: {', '.join(asked[name] for name in others)} "
            f"({_named(others)})."
        )
    return tuple(remarks)


def _named(parts: Iterable[str]) -> str:
    return ", ".join(repr(_PROPERTIES[name]) for name in parts)


def _bytes(text: str | None) -> int | None:
    for unit, factor in _UNITS:
        if text is not None and text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return None
