"""Sessions in containers created, used and released one after the other and side by side: nothing of any of them stays behind.

The short form is in every run; `./dev test -m faults -s -k many_sessions` does it with 300 and prints what it measured.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from context_client.sandboxes.containers import ContainerSandboxes, ContainerSandboxSettings
from tests.context_client.many_sessions import SIDE_BY_SIDE, open_files, play, traces

pytestmark = pytest.mark.anyio

Settings = Callable[..., ContainerSandboxSettings]


async def volumes(api: Any) -> set[str]:
    """Names of the engine's volumes that no container uses."""
    listed = await to_thread.run_sync(api.volumes, {"dangling": True})
    return {volume["Name"] for volume in listed["Volumes"] or ()}


async def containers(api: Any, instance_id: str) -> list[str]:
    chosen = {"label": [f"claude-code-sandbox={instance_id}"]}
    return [record["Id"] for record in await to_thread.run_sync(lambda: api.containers(all=True, filters=chosen))]


@pytest.mark.parametrize(
    "sessions",
    [
        pytest.param(12, id="twelve"),
        pytest.param(300, id="three hundred", marks=[pytest.mark.faults, pytest.mark.timeout(3600)]),
    ],
)
async def test_many_sessions_leave_nothing(quick: Settings, engine_api: Any, short_directory: Path, sessions: int) -> None:
    """Half of them end by idling or for want of room while others work, the rest when the provider closes."""
    settings = quick(
        instance_id=f"many-{sessions}",
        run_directory=short_directory,
        maximum=SIDE_BY_SIDE * 2,
        spare_idle_seconds=0.0,
        cooldown_seconds=5.0,
    )
    before, files = await volumes(engine_api), open_files()
    async with ContainerSandboxes(settings) as sandboxes:
        await play(sandboxes, sessions)
    assert await containers(engine_api, settings.instance_id) == []
    assert await traces(short_directory) == {}
    assert await volumes(engine_api) <= before
    assert open_files() <= files + 5
