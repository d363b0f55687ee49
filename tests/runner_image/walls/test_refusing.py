"""A run that may not begin: what is demanded of the wall is not there, and nothing is touched."""

import asyncio
from typing import Any

import pytest

from runner_image.errors import WallUnavailable
from runner_image.mailbox import open_mailboxes
from runner_image.places import Places
from runner_image.relay import Relay
from runner_image.run import Ready, Run
from runner_image.walls import Wall
from runner_image.walls.landlock import LandlockWall
from tests.runner_image.test_runner import RUN, plan
from workflow_schemas.mailbox import Exchange
from workflow_schemas.manifest import RunManifest
from workflow_schemas.plan import TurnPlan

pytestmark = pytest.mark.anyio


async def refused(places: Places, wall: "asyncio.Future[Wall]", **changes: Any) -> RunManifest:
    """Carry a run out that is refused, in a sandbox that an earlier turn has used."""
    (places.workspace / "work.txt").write_text("of an earlier turn")
    (places.outputs / "plot.txt").write_text("of an earlier turn")
    agent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with open_mailboxes(places.state / "mailbox.sqlite", "here") as mailboxes:
        mailbox = await mailboxes.open(RUN)
        ready = Ready(wall=wall, agent=agent)  # it never comes: nobody may wait for the agent
        told = TurnPlan.model_validate(plan(**changes))
        await Run(told, mailbox, places=places, relay=Relay(), generation="here", ready=ready).execute()
        reply = await mailbox.exchange(Exchange(run_id=RUN))
    manifest = RunManifest.model_validate(reply.messages[-1].body["manifest"])
    assert manifest.end_reason == "refused"
    assert sorted(path.read_text() for path in (places.workspace / "work.txt", places.outputs / "plot.txt")) == ["of an earlier turn"] * 2
    assert [output.role for output in manifest.outputs] == ["events", "log"]
    assert [message.body["type"] for message in reply.messages if message.kind == "event"] == ["progress", "error"]
    return manifest


async def test_a_weaker_wall_than_demanded(places: Places) -> None:
    wall: asyncio.Future[Wall] = asyncio.get_running_loop().create_future()
    wall.set_result(LandlockWall(places=places, abi=7, why_not_stronger="somebody forbids namespaces"))
    manifest = await refused(places, wall, minimum_wall="namespaces")
    assert manifest.wall is not None
    assert manifest.wall.level == "landlock"
    assert "somebody forbids namespaces" in manifest.detail


async def test_no_wall_at_all(places: Places) -> None:
    wall: asyncio.Future[Wall] = asyncio.get_running_loop().create_future()
    wall.set_exception(WallUnavailable("there is nothing here"))
    manifest = await refused(places, wall)
    assert (manifest.wall, manifest.detail) == (None, "there is nothing here")
