"""The kinds of places where sandboxes may be, as settings of a service that is put together as in production."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
from pydantic import SecretStr
from starlette.types import ASGIApp

from context_client.pools.emulator import EmulatorSettings, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from context_client.sandboxes.local import LocalSandboxes
from orchestration_service.scripted.endpoint import serve
from tests.images.building import NoEngine, build_image, find_engine

KINDS = ("local", "container", "session-pool")
_BEGINNINGS = (("session pool", "session-pool"), ("container", "container"), ("bubblewrap", "local"))


class Places:
    """Opens them; the image is built for the first container."""

    def __init__(self) -> None:
        self._image = ""

    @asynccontextmanager
    async def open(self, kind: str) -> AsyncIterator[dict[str, Any]]:
        """Settings that lead to sandboxes of a kind; without an engine the test is skipped where it needs one."""
        if kind == "local":
            yield {}
        elif kind == "container":
            yield {"sandboxes": "container", "container_image": await self.image()}
        else:
            async with _pool() as chosen:
                yield chosen

    async def image(self) -> str:
        """The image of this checkout."""
        if not self._image:
            try:
                find_engine()
            except NoEngine as error:
                pytest.skip(str(error))
            self._image = await asyncio.to_thread(build_image)
        return self._image


def kind_of(sandbox: str) -> str:
    """The kind of place a receipt speaks of."""
    return next(kind for begin, kind in _BEGINNINGS if sandbox.startswith(begin))


@asynccontextmanager
async def _pool() -> AsyncIterator[dict[str, Any]]:
    key = secrets.token_hex(32)
    async with AsyncExitStack() as stack:
        emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(key)), await stack.enter_async_context(LocalSandboxes()))
        stack.push_async_callback(emulator.aclose)
        pool = await stack.enter_async_context(serve(cast(ASGIApp, emulator)))
        token = await LocalTokens(key.encode()).fetch()
        yield {
            "sandboxes": "session-pool",
            "session_pools": [{"name": "emulated", "endpoint": pool.base_url, "region": "here"}],
            "session_pool_key": key,
            "session_pool_token": token.value,
        }
