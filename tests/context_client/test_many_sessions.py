"""Sessions on this machine and behind a pool created, used and released: nothing of any of them stays behind.

The short form is in every run; `./dev test -m faults -s -k many_sessions` does it with 300 and prints what it measured.
Containers have theirs beside their other tests, and the slots of a pool beside those of pools.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from context_client.embedded.provider import SandboxProvider
from context_client.pools import DynamicSessions, DynamicSessionsSettings, SessionPool
from context_client.pools.emulator import EmulatorSettings, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from context_client.sandboxes.local import LocalSandboxes, LocalSandboxSettings
from tests.context_client.many_sessions import SIDE_BY_SIDE, Processes, open_files, play, traces
from tests.context_client.pools.conftest import KEY, serving

pytestmark = pytest.mark.anyio

COOLDOWN_SECONDS = 6.0
"""Longer than any two calls of a session are apart, on a busy machine too."""


@asynccontextmanager
async def on_this_machine(folder: Path) -> AsyncIterator[SandboxProvider]:
    settings = LocalSandboxSettings(
        run_directory=folder, maximum=SIDE_BY_SIDE * 3, cooldown_seconds=COOLDOWN_SECONDS, spare_idle_seconds=0.0, prewarm_runner=False
    )
    async with LocalSandboxes(settings) as sandboxes:
        yield sandboxes


@asynccontextmanager
async def behind_a_pool(folder: Path) -> AsyncIterator[SandboxProvider]:
    """Each slot is held for a cooldown, so that most of three hundred sessions wait for the end of another's."""
    async with AsyncExitStack() as stack:
        sandboxes = await stack.enter_async_context(on_this_machine(folder))
        held = COOLDOWN_SECONDS - 1  # a slot goes before its sandbox does
        chosen = EmulatorSettings(token_key=SecretStr(KEY), max_sessions=SIDE_BY_SIDE * 2, cooldown_seconds=held)
        emulator = PoolEmulator(chosen, sandboxes)
        stack.push_async_callback(emulator.aclose)
        url = await stack.enter_async_context(serving(emulator))
        pools = (SessionPool(name="one", endpoint=url, cooldown_seconds=held),)
        settings = DynamicSessionsSettings(pools=pools, identifier_key=SecretStr("k" * 32), retry_seconds=0.05)
        yield await stack.enter_async_context(DynamicSessions(settings, tokens=LocalTokens(KEY.encode())))


@pytest.mark.parametrize(
    "sessions",
    [
        pytest.param(12, id="twelve"),
        pytest.param(300, id="three hundred", marks=[pytest.mark.faults, pytest.mark.timeout(3600)]),
    ],
)
@pytest.mark.parametrize("opened", [on_this_machine, behind_a_pool])
async def test_many_sessions_leave_nothing(opened: Any, short_directory: Path, sessions: int) -> None:
    """Most of them end by idling or for want of room while others work, the rest when the provider closes."""
    processes, files = Processes(), open_files()
    async with opened(short_directory) as sandboxes:
        await play(sandboxes, sessions, processes)
        await processes.look()
    assert len(processes.seen) >= sessions
    assert await processes.left() == []
    assert await traces(short_directory) == {}
    assert open_files() <= files + 5
