"""The direct path before emulated pools of both kinds, with real sandboxes behind them."""

from collections.abc import AsyncIterator
from typing import Literal

import pytest
from pydantic import SecretStr

from context_client.pools import DynamicSessions, DynamicSessionsSettings, SessionPool
from context_client.pools.emulator import EmulatorSettings, InterpreterSandboxes, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from tests.context_client.direct.conftest import Places
from tests.context_client.direct.journey import from_init_to_clear
from tests.context_client.pools.conftest import KEY, serving

pytestmark = pytest.mark.anyio

Kind = Literal["custom-container", "code-interpreter"]


@pytest.fixture(params=["custom-container", "code-interpreter"])
async def pooled(places: Places, request: pytest.FixtureRequest) -> AsyncIterator[Places]:
    """Sandboxes as `DynamicSessions` gives them; the second kind executes code and has no other route of ours."""
    kind: Kind = request.param
    behind = places.sandboxes if kind == "custom-container" else InterpreterSandboxes(places.sandboxes)
    emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(KEY)), behind)
    async with serving(emulator) as url:
        pool = SessionPool(name="one", endpoint=url)
        settings = DynamicSessionsSettings(pools=(pool,), identifier_key=SecretStr("k" * 32), kind=kind)
        async with DynamicSessions(settings, tokens=LocalTokens(KEY.encode())) as sessions:
            yield Places(sessions)
    await emulator.aclose()


async def test_a_conversation_through_a_pool(pooled: Places) -> None:
    await from_init_to_clear(pooled, "pooled-1")
