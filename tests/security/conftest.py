"""Where the agent of these tests works: in the local sandbox behind namespaces, and in a container of the image behind Landlock."""

from collections.abc import AsyncIterator, Mapping

import pytest

from tests.journeys.places import Places
from tests.stage import Stage, open_stage
from workflow_schemas.walls import WallLevel

LEVELS: Mapping[str, WallLevel] = {"local": "namespaces", "container": "landlock"}
"""The wall each place must have; it is demanded there, so that no test passes behind a weaker one."""

CONFIG: Mapping[str, str] = {"local": "/agent", "container": "/run/claude-code/agent"}
"""Where the CLI has its configuration in each place."""

HOME: Mapping[str, str] = {"local": "/home/agent", "container": "/run/claude-code/home"}
"""Where the agent has its home in each place."""


@pytest.fixture(scope="session")
def places() -> Places:
    return Places()


@pytest.fixture(scope="module", params=LEVELS)
def place(request: pytest.FixtureRequest) -> str:
    """Each place in turn; what only some walls give names its place by itself."""
    return str(request.param)


@pytest.fixture(scope="module")
async def stage(place: str, places: Places, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A platform with sandboxes in that place; turns of one conversation share one."""
    folder = tmp_path_factory.mktemp(place)
    async with places.open(place) as chosen, open_stage(folder, minimum_wall=LEVELS[place], **chosen) as opened:
        yield opened
