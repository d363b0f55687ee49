"""A running service follows the store in what is safe to change, and tells the rest."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from orchestration_service.errors import KeyRefused
from orchestration_service.freshness import keep_fresh
from orchestration_service.platform_configuration import open_platform_configuration
from orchestration_service.security import Doorkeeper
from tests.orchestration_service.configuration.store import OURS, SECRET, Identity, Store

pytestmark = pytest.mark.anyio

IDENTITY = '{"name": "Ann", "user_name": "ann@example.com", "upn": "ann@example.com"}'
INSTANCE = "11111111-2222-3333-4444-555555555555"


class Headers:
    def __init__(self, key: str) -> None:
        self.key = key

    def getlist(self, name: str) -> list[str]:
        return [self.key if name == "X-API-KEY" else IDENTITY]


def admitted(doorkeeper: Doorkeeper, key: str) -> bool:
    try:
        return doorkeeper.admit(INSTANCE, Headers(key)).upn == "ann@example.com"
    except KeyRefused:
        return False


@asynccontextmanager
async def followed(store: Store) -> AsyncIterator[Doorkeeper]:
    doorkeeper = Doorkeeper(instance_id=INSTANCE, api_key=SecretStr(SECRET))
    async with open_platform_configuration(store.url, credential=Identity()) as platform:
        following = asyncio.create_task(keep_fresh(platform, doorkeeper, every_seconds=0.02))
        try:
            yield doorkeeper
        finally:
            following.cancel()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_replaced_key_holds_at_once_and_the_one_before_for_an_hour(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration_service.platform_configuration._SECRET_SECONDS", 0)
    async with followed(store) as doorkeeper:
        assert not admitted(doorkeeper, "the-next-key")
        store.secrets["claudecode"] = "the-next-key"
        await until(lambda: admitted(doorkeeper, "the-next-key"))
        assert admitted(doorkeeper, SECRET)
        monkeypatch.setattr("orchestration_service.security._OVERLAP_SECONDS", 0)
        assert not admitted(doorkeeper, SECRET)
        assert admitted(doorkeeper, "the-next-key")


async def test_what_needs_a_restart_is_told(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with followed(store) as doorkeeper:
            store.values[f"{OURS}:Configuration:LeaseSeconds"] = "12"
            await until(lambda: "takes effect at the next start" in caplog.text)
            store.failing = 403
            await until(lambda: "stays in force" in caplog.text)
            assert admitted(doorkeeper, SECRET)
    assert f"{OURS}:Configuration:LeaseSeconds has changed" in caplog.text
