"""A turn outlives the process that works on it, and nobody who waits for it notices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.cli.repository import pack
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.demo_repository import create_demo_repository
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import shipped_script
from tests.journeys.replicas import LEASE_SECONDS, Replicas, Start, files_of, open_replicas, receipt

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@asynccontextmanager
async def working(
    folder: Path, lease: int = LEASE_SECONDS, *, first: Start | None = None
) -> AsyncIterator[tuple[Replicas, ScriptedModel, str]]:
    """Two replicas, the first of them, which has its leases for so long, in the middle of a turn of eight model calls."""
    script = shipped_script("edit_eight")
    slow = script.model_copy(update={"steps": tuple(step.model_copy(update={"delay_seconds": 0.4}) for step in script.steps)})
    model = ScriptedModel(slow)
    made = await asyncio.to_thread(create_demo_repository, folder / "pricing")
    async with serve(model) as endpoint, open_replicas(folder, endpoint.base_url, leases=(lease, LEASE_SECONDS), first=first) as replicas:
        caller = replicas.callers[0]
        record = await caller.upload("c", "repository.tar", await asyncio.to_thread(pack, made.path))
        replicas.body = caller.completion("c", "Fix it.", [record], model="claude-sonnet-4-5")
        operation = await caller.start(replicas.body)
        while len(asked(model)) < 4:
            await replicas.status(operation)
            await asyncio.sleep(0.05)
        yield replicas, model, operation


def asked(model: ScriptedModel) -> list[str]:
    return [request.path for request in model.received if request.path.startswith("/v1/messages") and "count_tokens" not in request.path]


def check(replicas: Replicas, model: ScriptedModel, ended: dict[str, Any]) -> None:
    assert ended["status"] == "Completed", ended["result"]
    assert [state["status"] for state in replicas.polls[:-1]] == ["InProgress"] * (len(replicas.polls) - 1)
    told = receipt(ended)
    assert (told.end_reason, told.usage.model_calls, told.patch_proven, told.lost) == ("completed", 8, True, ())
    assert len(asked(model)) in (8, 9), "one call may have been under way"
    assert any("interrupted" in remark for remark in told.remarks)
    names = files_of(ended)
    assert len(names) >= 6
    stored = replicas.stored()
    assert {stored[name] for name in names} == {1}, stored


async def test_a_killed_replica_is_replaced_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    async with working(tmp_path) as (replicas, model, operation):
        replicas.services[0].kill()
        ended = await replicas.finished(operation)
        check(replicas, model, ended)
        events = [event async for event in replicas.callers[1].events(operation) if "seq" in event]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        tools = [event["id"] for event in events if event["type"] == "tool_start"]
        assert len(tools) == len(set(tools)) > 6


async def test_a_replica_that_is_told_to_stop_hands_its_turns_over_at_once(tmp_path: Path) -> None:
    """Its lease would have gone on for an hour, and the repeated request is answered by the other one."""
    async with working(tmp_path, lease=3600) as (replicas, model, operation):
        await replicas.services[0].stop()
        assert await replicas.callers[1].start(replicas.body) == operation
        ended = await replicas.finished(operation)
        check(replicas, model, ended)
