"""Sessions created, used and released one after the other and side by side: nothing of any of them stays behind.

The short form is in every run; `pytest -m faults -s -k many_sessions` does it with 300 and prints what it measured.
"""

import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread

from context_client.conformance.container import download, execute, upload
from context_client.sandboxes.containers import ContainerSandboxes, ContainerSandboxSettings

pytestmark = pytest.mark.anyio

SIDE_BY_SIDE = 6
EXCHANGES = 20
Settings = Callable[..., ContainerSandboxSettings]


@dataclass
class Figures:
    """Seconds, as measured by the caller."""

    starts: list[float] = field(default_factory=list)
    executions: list[float] = field(default_factory=list)
    round_trips: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        rows = {"start": self.starts, "execution": self.executions, "round trip": self.round_trips}
        return "\n".join(
            f"{name}: p50 {statistics.median(values) * 1000:.1f} ms, worst {max(values) * 1000:.1f} ms, n {len(values)}"
            for name, values in rows.items()
        )


@asynccontextmanager
async def timed(into: list[float]) -> AsyncIterator[None]:
    started = time.monotonic()
    yield
    into.append(time.monotonic() - started)


async def use(sandboxes: ContainerSandboxes, session_id: str, figures: Figures) -> None:
    """One user's session: a file in, code that works on it, the result out."""
    async with timed(figures.starts):
        endpoint = await sandboxes.endpoint(session_id=session_id, upn="many@example.test")
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=60) as client:
        assert (await upload(client, "in.txt", session_id.encode())).is_success
        async with timed(figures.executions):
            await execute(client, "open('out.txt', 'w').write(open('in.txt').read()[::-1])")
        assert (await download(client, "out.txt")).content == session_id[::-1].encode()
        for _ in range(EXCHANGES):
            async with timed(figures.round_trips):
                await client.get("/health")


async def traces(api: Any, instance_id: str, directory: Path) -> dict[str, list[str]]:
    """Everything a container could leave on this machine, besides what other people's containers have."""

    def look() -> dict[str, list[str]]:
        chosen = {"label": [f"claude-code-sandbox={instance_id}"]}
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/mountinfo") if _reads(path)]
        return {
            "containers": [record["Id"] for record in api.containers(all=True, filters=chosen)],
            "processes": [f"a process sees {directory}" for mounts in commands if str(directory).encode() in mounts],
            "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line],
            "files and sockets": [str(path) for path in directory.rglob("*")],
        }

    return await to_thread.run_sync(look)


def _reads(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


async def volumes(api: Any) -> set[str]:
    """Names of the engine's volumes that no container uses."""
    listed = await to_thread.run_sync(api.volumes, {"dangling": True})
    return {volume["Name"] for volume in listed["Volumes"] or ()}


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
    figures, gate, before = Figures(), anyio.Semaphore(SIDE_BY_SIDE), await volumes(engine_api)

    async def one(number: int) -> None:
        async with gate:
            await use(sandboxes, f"session-{number}", figures)

    async with ContainerSandboxes(settings) as sandboxes, anyio.create_task_group() as group:
        for number in range(sessions):
            group.start_soon(one, number)
    print(f"\n{sessions} sessions, {SIDE_BY_SIDE} side by side\n{figures}")
    assert len(figures.starts) == sessions
    assert not {what: found for what, found in (await traces(engine_api, settings.instance_id, short_directory)).items() if found}
    assert await volumes(engine_api) <= before
