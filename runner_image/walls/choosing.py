"""Finds the best wall that this sandbox lets us have; without one, or behind a weaker one than demanded, no agent runs."""

from runner_image.errors import WallTooWeak, WallUnavailable
from runner_image.places import Places
from runner_image.walls.bubblewrap import find_bubblewrap_wall
from runner_image.walls.landlock import find_landlock_wall
from runner_image.walls.wall import Wall
from workflow_schemas.walls import WallLevel, is_weaker


async def find_wall(places: Places) -> Wall:
    """Return the wall of this sandbox after trying it out: namespaces, else Landlock.

    Raises:
        WallUnavailable: This sandbox offers neither. The agent must not run then.
    """
    try:
        return await find_bubblewrap_wall(places)
    except WallUnavailable as error:
        without_namespaces = str(error)
    try:
        return await find_landlock_wall(places, why_not_stronger=without_namespaces)
    except WallUnavailable as error:
        raise WallUnavailable(
            f"The agent could not be kept apart from the runner: {without_namespaces}; {error}. Run the sandbox as a user other than "
            "root, and either allow user namespaces in it or use a kernel from Linux 6.12 on with Landlock."
        ) from error


def refuse_weaker(wall: Wall, minimum: WallLevel | None) -> None:
    """Hold a wall against the weakest one that a run may have.

    Raises:
        WallTooWeak: It is weaker. The agent must not run.
    """
    facts = wall.describe()
    if is_weaker(facts.level, minimum):
        reason = f": {facts.why_not_stronger}" if facts.why_not_stronger else ""
        raise WallTooWeak(
            f"A wall of level {minimum!r} between agent and runner is demanded, and the strongest this sandbox allows is "
            f"{facts.kind} of level {facts.level!r}{reason}. Nothing was executed."
        )
