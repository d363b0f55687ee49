"""Holds the wall a turn has had against the one that was demanded, and says who demands it and what can be done.

The runner refuses a weaker wall before anything of the agent runs, but it cannot know whose demand that was.
"""

from orchestration_service.planning import Planned
from orchestration_service.settings import PREFIX
from workflow_schemas.manifest import RunManifest
from workflow_schemas.walls import is_weaker

_WITHOUT_AN_AGENT = ("refused", "sandbox_lost", "runner_crashed", "input_error")


def explain_refusal(manifest: RunManifest, planned: Planned) -> RunManifest:
    """Say in the manifest of a refused turn who has to do what."""
    if manifest.end_reason != "refused":
        return manifest
    parts = [manifest.detail]
    if planned.plan.minimum_wall is not None:
        parts.append(
            f"The demand is that of {_who(planned)}. Either the installation uses sandboxes where user namespaces are allowed "
            "(docs/walls.md says which), or the demand is lowered there."
        )
    parts.append("Then send the message again, with its files.")
    return manifest.model_copy(update={"detail": " ".join(part for part in parts if part)})


def unkept_demand(manifest: RunManifest, planned: Planned) -> tuple[str, ...]:
    """Return a sentence if a turn ran behind less than was demanded: a runner that is older than the demand does not know it."""
    minimum = planned.plan.minimum_wall
    if minimum is None or manifest.end_reason in _WITHOUT_AN_AGENT:
        return ()
    if manifest.wall is not None and not is_weaker(manifest.wall.level, minimum):
        return ()
    found = f"one of level {manifest.wall.level!r}" if manifest.wall else "none it tells of"
    return (
        f"A wall of level {minimum!r} between agent and runner was demanded, and this turn ran behind {found}. The runner in the sandbox "
        "is older than this service, or not ours: an operator has to look at it before this agent is used again.",
    )


def _who(planned: Planned) -> str:
    if planned.properties.minimum_wall == planned.plan.minimum_wall:
        return "the workflow property 'minimum_wall', which an administrator of the agent sets"
    return f"the setting {PREFIX}MINIMUM_WALL of this installation"
