"""Tokens through the real azure-identity, which asks a managed identity's endpoint on this machine."""

import time

import anyio
import pytest
from azure.identity.aio import ManagedIdentityCredential
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from context_client.pools.local_tokens import LocalTokens
from context_client.pools.tokens import CachedTokens, EntraTokens, PoolToken
from tests.context_client.pools.conftest import KEY, Pool, World, serving
from tests.context_client.pools.test_provider import run

pytestmark = pytest.mark.anyio


async def test_a_managed_identity_opens_the_pool(world: World, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def token(request: Request) -> Response:
        asked.append(request.query_params["resource"])
        given = await LocalTokens(KEY.encode()).fetch()
        answer = {"access_token": given.value, "expires_on": str(int(given.expires_at)), "token_type": "Bearer", "resource": asked[-1]}
        return JSONResponse(answer)

    async with serving(Starlette(routes=[Route("/msi/token", token)])) as url:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "a-secret-of-this-machine")
        async with ManagedIdentityCredential() as credential:
            async with world.provider(pool, tokens=EntraTokens(credential)) as sessions, world.client(sessions, "one") as client:
                for _ in range(3):
                    assert await run(client, "print(1)") == "1\n"
    assert asked == ["https://dynamicsessions.io"]


class Counted:
    """Numbers its tokens; each lasts as long as told."""

    def __init__(self, lasts: float) -> None:
        self.lasts = lasts
        self.fetched = 0

    async def fetch(self) -> PoolToken:
        self.fetched += 1
        number = self.fetched
        await anyio.sleep(0.05)
        if self.lasts < 0:
            raise RuntimeError("the identity is away")
        return PoolToken(value=str(number), expires_at=time.time() + self.lasts)


async def test_callers_share_a_fetch() -> None:
    source = Counted(3600)
    tokens = CachedTokens(source)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(tokens.get)
    assert source.fetched == 1


async def test_callers_who_were_refused_share_a_fetch() -> None:
    source = Counted(3600)
    tokens = CachedTokens(source)
    bad = await tokens.get()
    seen: list[str] = []

    async def again() -> None:
        seen.append((await tokens.get(rejected=bad)).value)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(again)
    assert set(seen) == {"2"}


async def test_a_token_that_is_still_good_is_used_while_the_identity_is_away() -> None:
    source = Counted(100)
    tokens = CachedTokens(source, ahead_seconds=300)
    first = await tokens.get()
    source.lasts = -1
    assert await tokens.get() == first
    with pytest.raises(RuntimeError, match="the identity is away"):
        await tokens.get(rejected=first)


def test_a_token_does_not_show_itself() -> None:
    assert "secret" not in repr(PoolToken(value="secret", expires_at=1))
