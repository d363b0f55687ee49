"""A pool whose image is of another version is told at a session's first call, before anything reaches its sandbox."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from context_client.pools import DynamicSessionsSettings, PoolMisfit
from tests.context_client.pools.conftest import KEY, World
from tests.context_client.pools.test_provider import run

pytestmark = pytest.mark.anyio

WANTED = {"source_digest": "sha256:ours"}
Container = Callable[[Path], Starlette]


class Image:
    """Containers that say what they are."""

    def __init__(self, container_on: Container, health: Response) -> None:
        self._container_on = container_on
        self.health = health
        self.asked = 0

    def __call__(self, folder: Path) -> Starlette:
        app = self._container_on(folder)
        app.router.routes.append(Route("/health", self._tell))
        return app

    async def _tell(self, request: Request) -> Response:
        self.asked += 1
        return self.health


async def test_each_sandbox_is_asked_once_what_it_is(tmp_path: Path, container_on: Container) -> None:
    image = Image(container_on, JSONResponse({"status": "ready", **WANTED}))
    world = World(tmp_path, image)
    async with world.pool() as pool, world.provider(pool, expected=WANTED) as sessions, world.client(sessions, "one") as client:
        for _ in range(3):
            await run(client, "pass")
        assert image.asked == 1
        async with world.client(sessions, "two") as other:
            await run(other, "pass")
        assert image.asked == 2


@pytest.mark.parametrize(
    ("health", "words"),
    [
        pytest.param(JSONResponse({"source_digest": "sha256:theirs"}), "'sha256:theirs' and must be 'sha256:ours'", id="another"),
        pytest.param(Response("<html>"), "'not told' and must be 'sha256:ours'", id="no-json"),
        pytest.param(JSONResponse(WANTED, 500), "'not told'", id="failing"),
        pytest.param(Response(b"[" * 200_000), "'not told'", id="endless"),
    ],
)
async def test_another_version_is_refused_and_nothing_of_the_caller_runs(
    tmp_path: Path, container_on: Container, health: Response, words: str
) -> None:
    world = World(tmp_path, Image(container_on, health))
    async with world.pool() as pool, world.provider(pool, expected=WANTED) as sessions, world.client(sessions, "one") as client:
        for _ in range(2):
            with pytest.raises(PoolMisfit, match=words) as raised:
                await run(client, "open('trace', 'w').close()")
        assert raised.value.pool == "pool-0"
        assert sessions.figures()[0].verdicts == {"misfit": 2}
        assert [path async for path in anyio.Path(tmp_path).glob("**/trace")] == []


async def test_an_image_that_was_exchanged_meanwhile_is_seen_with_the_next_slot(tmp_path: Path, container_on: Container) -> None:
    """A pool that moves to another image gives it to new sandboxes only, and each of those is asked."""
    image = Image(container_on, JSONResponse(WANTED))
    world = World(tmp_path, image)
    async with world.pool(cooldown_seconds=0.05) as pool, world.provider(pool, cooldown=0.05, expected=WANTED) as sessions:
        async with world.client(sessions, "one") as client:
            await run(client, "pass")
            image.health = JSONResponse({})
            await anyio.sleep(0.2)
            with pytest.raises(PoolMisfit):
                await run(client, "pass")


def test_a_code_interpreter_cannot_be_asked() -> None:
    pool = {"name": "a", "endpoint": "http://127.0.0.1:1"}
    with pytest.raises(ValueError, match="do not tell what they are"):
        DynamicSessionsSettings.model_validate({"pools": [pool], "identifier_key": KEY, "kind": "code-interpreter", "expected": WANTED})
