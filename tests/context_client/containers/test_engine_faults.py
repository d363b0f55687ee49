"""The engine goes away and comes back: what runs goes on, what starts waits a while, what ends is removed later."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread
from anyio.abc import ByteStream, SocketStream

from context_client.conformance.container import listing
from context_client.sandboxes.containers import ContainerSandboxes, ContainerSandboxSettings, EngineSilent

pytestmark = pytest.mark.anyio

USER = "one@example.test"
Settings = Callable[..., ContainerSandboxSettings]
Speak = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


class Switch:
    """A way to the engine that can be shut: then whoever comes is turned away at once, like from a daemon that is down."""

    def __init__(self, engine: str, path: Path) -> None:
        self.is_open = True
        self.path = path
        self._engine = engine
        self._ways: set[SocketStream] = set()

    async def shut(self) -> None:
        """Cut what is under way, too."""
        self.is_open = False
        for way in list(self._ways):
            await way.aclose()

    async def pass_on(self, caller: SocketStream) -> None:
        async with caller:
            if not self.is_open:
                return
            self._ways.add(caller)
            async with await anyio.connect_unix(self._engine) as engine, anyio.create_task_group() as group:
                group.start_soon(_pump, caller, engine)
                await _pump(engine, caller)
                group.cancel_scope.cancel()
            self._ways.discard(caller)


async def _pump(source: ByteStream, target: ByteStream) -> None:
    try:
        async for chunk in source:
            await target.send(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass


@pytest.fixture
async def switch(engine_api: Any, short_directory: Path, anyio_backend: str) -> AsyncIterator[Switch]:
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    switch = Switch(address.partition("://")[2], short_directory / "engine.sock")
    async with await anyio.create_unix_listener(switch.path) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, switch.pass_on)
        yield switch
        group.cancel_scope.cancel()


@asynccontextmanager
async def opened(settings: ContainerSandboxSettings) -> AsyncIterator[ContainerSandboxes]:
    async with ContainerSandboxes(settings) as sandboxes:
        yield sandboxes


async def ours(api: Any, settings: ContainerSandboxSettings, *, state: str) -> list[dict[str, Any]]:
    chosen = {"label": [f"claude-code-sandbox={settings.instance_id}"]}
    records = await to_thread.run_sync(lambda: api.containers(all=True, filters=chosen))
    return [record for record in records if record["State"] == state]


async def test_what_runs_needs_no_engine_and_what_starts_is_told(quick: Settings, switch: Switch, speak: Speak) -> None:
    settings = quick(instance_id="silent", engine_url=f"unix://{switch.path}", engine_patience_seconds=0.5)
    async with opened(settings) as sandboxes, speak(sandboxes, "runs") as client:
        await switch.shut()
        assert await listing(client) == {}
        await sandboxes.endpoint(session_id="runs", upn=USER)
        with pytest.raises(EngineSilent, match="does not answer.*try again"):
            await sandboxes.endpoint(session_id="starts", upn=USER)
        switch.is_open = True
        await sandboxes.endpoint(session_id="starts", upn=USER)


async def test_a_start_waits_for_an_engine_that_comes_back(quick: Settings, switch: Switch) -> None:
    settings = quick(instance_id="restarting", engine_url=f"unix://{switch.path}", engine_patience_seconds=20)
    async with opened(settings) as sandboxes, anyio.create_task_group() as group:
        await switch.shut()
        group.start_soon(lambda: sandboxes.endpoint(session_id="starts", upn=USER))
        await anyio.sleep(1)
        switch.is_open = True


async def test_what_ends_while_the_engine_is_silent_is_removed_later(quick: Settings, switch: Switch, engine_api: Any) -> None:
    """Its processes end at once: they need no engine for that."""
    settings = quick(
        instance_id="later", engine_url=f"unix://{switch.path}", engine_patience_seconds=0.1, cooldown_seconds=0.5, sweep_seconds=0.5
    )
    async with opened(settings) as sandboxes:
        await sandboxes.endpoint(session_id="idle", upn=USER)
        await switch.shut()
        with anyio.fail_after(20):
            while not await ours(engine_api, settings, state="exited"):
                await anyio.sleep(0.1)
        switch.is_open = True
        with anyio.fail_after(20):
            while await ours(engine_api, settings, state="exited"):
                await anyio.sleep(0.1)


async def test_closing_without_an_engine_takes_no_long_time_and_ends_everything(quick: Settings, switch: Switch, engine_api: Any) -> None:
    settings = quick(instance_id="closing", engine_url=f"unix://{switch.path}", engine_patience_seconds=0.2)
    async with opened(settings) as sandboxes:
        await sandboxes.endpoint(session_id="a", upn=USER)
        await switch.shut()
        started = time.monotonic()
    assert time.monotonic() - started < 20
    with anyio.fail_after(20):
        while await ours(engine_api, settings, state="running"):
            await anyio.sleep(0.1)
    switch.is_open = True
    async with opened(settings):
        assert await ours(engine_api, settings, state="exited") == []
