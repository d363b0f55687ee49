"""What a running service says of itself, for whoever looks after it."""

from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from pydantic import SecretStr

from orchestration_service.composition import open_service
from orchestration_service.freshness import keep_fresh
from orchestration_service.platform_configuration import open_platform_configuration
from orchestration_service.remarks import ALONE, STORE_AWAY, Remarks
from orchestration_service.security import Doorkeeper
from orchestration_service.settings import load_settings
from tests.orchestration_service.configuration.store import OURS, Identity, Store, serve_store

pytestmark = pytest.mark.anyio


async def test_a_service_with_a_store_of_its_own_says_so_where_an_instance_is_named(tmp_path: Path) -> None:
    remote: dict[str, Any] = {"context_url": "http://127.0.0.1:9", "context_api_key": "key-of-the-context-api"}
    settings = load_settings(_env_file=None, instance_id="one", api_key="key-of-the-service", data_dir=tmp_path, **remote)
    async with (
        open_service(settings) as service,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=service.app), base_url="http://service") as client,
    ):
        assert (await client.get("/instances/one/status")).json()["message"] == ALONE
        service.remarks.withdraw("turns")
        assert "message" not in (await client.get("/instances/one/status")).json()
        assert "message" not in (await client.get("/status")).json()


async def test_a_store_that_goes_away_is_told_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, remarks = Store(values={f"{OURS}:Configuration:LeaseSeconds": "30"}), Remarks()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "store.crt"))
    doorkeeper = Doorkeeper(instance_id="one", api_key=SecretStr("key-of-the-service"))
    async with serve_store(store, tmp_path), open_platform_configuration(store.url, credential=Identity()) as platform:
        store.failing = 403
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                await keep_fresh(platform, doorkeeper, remarks=remarks, every_seconds=0.01)

            tasks.start_soon(look)
            for failing, told in ((403, STORE_AWAY), (0, None)):
                store.failing = failing
                with anyio.fail_after(20):
                    while remarks.text != told or (told is None and platform.is_away):
                        await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
