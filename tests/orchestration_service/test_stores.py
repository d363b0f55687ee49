"""The operator's choice of stores becomes the store that was chosen, or a message about what is missing."""

import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from context_client.embedded.app import open_app
from context_client.embedded.problems import Problem
from context_client.embedded.settings import EmbeddedSettings
from orchestration_service.errors import SettingsError, StoreBusy, StoreUnusable
from orchestration_service.operations import SqliteOperations
from orchestration_service.operations.conformance import CHECKS
from orchestration_service.operations.cosmos import CosmosOperations
from orchestration_service.settings import Settings, load_settings
from orchestration_service.stores import context_account, open_store, opened, operations_account
from tests.emulators.servers import AZURITE_KEY, COSMOS_KEY, Emulator
from tests.emulators.state_api import KEY as STATE_KEY
from tests.emulators.state_api import serve_state_api

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulators

INSTANCE = "i"
NOWHERE = {
    "cosmos_endpoint": "http://127.0.0.1:9",
    "cosmos_key": COSMOS_KEY,
    "blob_endpoint": "http://127.0.0.1:9/a",
    "blob_key": AZURITE_KEY,
}


def chosen(folder: Path, **more: Any) -> Settings:
    wanted = {"instance_id": "11111111-2222-3333-4444-555555555555", "api_key": "a-key-for-tests", "data_dir": folder, **more}
    return load_settings(_env_file=None, **wanted)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def accounts(cosmos_emulator: Emulator, blob_emulator: Emulator, database_name: str) -> dict[str, Any]:
    return {
        "cosmos_endpoint": cosmos_emulator.url,
        "cosmos_key": COSMOS_KEY,
        "cosmos_database": database_name,
        "blob_endpoint": blob_emulator.url,
        "blob_key": AZURITE_KEY,
        "blob_container": database_name,
    }


async def test_sqlite_in_the_data_folder_is_the_default(tmp_path: Path) -> None:
    settings = chosen(tmp_path)
    assert context_account(settings) is None
    async with open_store(settings) as store:
        assert isinstance(store, SqliteOperations)
    assert names(tmp_path) == ["operations.sqlite"]


async def test_cosmos_with_a_state_api_keeps_what_the_port_promises(accounts: dict[str, Any], tmp_path: Path) -> None:
    """The first check on all three together; nothing is written to the data folder."""
    async with serve_state_api(INSTANCE) as state:
        more = {"instance_id": "iii", "create_missing_stores": True, "state_api_url": state.url, "state_api_key": STATE_KEY}
        async with open_store(chosen(tmp_path, **accounts, **more)) as store:
            await CHECKS[0](store)
        async with open_store(chosen(tmp_path, **accounts)) as store:
            assert isinstance(store, CosmosOperations)
    assert names(tmp_path) == []


def test_every_name_reaches_the_adapters(accounts: dict[str, Any], tmp_path: Path) -> None:
    settings = chosen(tmp_path, **accounts, cosmos_container="Mine", cosmos_context_container="Files", operations_kept_days=70)
    operations, context = operations_account(settings), context_account(settings)
    assert operations is not None
    assert context is not None
    assert (operations.database, operations.container, operations.blob_container) == (
        settings.cosmos_database,
        "Mine",
        settings.blob_container,
    )
    assert (context.database, context.container, context.create_missing) == (settings.cosmos_database, "Files", False)
    assert operations.operation_days == 70
    assert (operations.key, context.blob_key) == (settings.cosmos_key, settings.blob_key)


async def test_a_container_that_is_not_there_is_named_and_not_made(accounts: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="ClaudeCode.*is not there"):
        async with open_store(chosen(tmp_path, **accounts)):
            pass


async def test_an_account_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreBusy, match=r"127\.0\.0\.1:9.*does not answer"):
        async with open_store(chosen(tmp_path, **NOWHERE)):
            pass


async def test_a_missing_package_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)  # as if it were not installed
    with pytest.raises(SettingsError, match="'aiohttp' is missing.*'azure'") as raised:
        async with open_store(chosen(tmp_path, **NOWHERE)):
            pass
    assert raised.value.names == ("CLAUDE_CODE_COSMOS_ENDPOINT",)


async def test_an_embedded_context_api_without_its_container_is_told_as_a_store(accounts: dict[str, Any], tmp_path: Path) -> None:
    settings = chosen(tmp_path, **accounts)
    embedded = EmbeddedSettings(folder=tmp_path, instance_id=INSTANCE, api_key=settings.api_key, azure=context_account(settings))
    async with AsyncExitStack() as stack:
        with pytest.raises(StoreUnusable, match="the platform's storage cannot be used.*404"):
            await opened(stack, open_app(embedded, providers={}))


async def test_the_embedded_context_api_names_a_missing_package_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    settings = chosen(tmp_path, **NOWHERE)
    embedded = EmbeddedSettings(folder=tmp_path, instance_id=INSTANCE, api_key=settings.api_key, azure=context_account(settings))
    with pytest.raises(Problem, match="'aiohttp' is missing"):
        async with open_app(embedded, providers={}):
            pass


def test_nothing_of_azure_is_imported_unless_it_is_chosen() -> None:
    code = "import sys, orchestration_service.composition; print([n for n in sys.modules if n.split('.')[0] in ('azure', 'aiohttp')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
