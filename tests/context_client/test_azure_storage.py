"""The embedded server on Cosmos DB and Blob storage: the same Context API, in the platform's own layout."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.cosmos.aio import CosmosClient
from azure.storage.blob.aio import ContainerClient
from pydantic import SecretStr

from context_client import ContextClient, UserIdentity
from context_client.conformance.context_api import CHECKS, Ground, run_check
from context_client.embedded.app import open_app
from context_client.embedded.azure_blobs import blob_name
from context_client.embedded.azure_settings import AzureStorage
from context_client.embedded.problems import Problem
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxProvider
from context_client.embedded.settings import EmbeddedSettings
from tests.emulators.servers import AZURITE_KEY, COSMOS_KEY, Emulator

INSTANCE = "11111111-2222-3333-4444-555555555555"

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulators


@pytest.fixture
def azure(cosmos_emulator: Emulator, blob_emulator: Emulator, database_name: str) -> AzureStorage:
    return AzureStorage(
        cosmos_endpoint=cosmos_emulator.url,
        cosmos_key=SecretStr(COSMOS_KEY),
        database=database_name,
        blob_endpoint=blob_emulator.url,
        blob_key=SecretStr(AZURITE_KEY),
        create_missing=True,
    )


@pytest.fixture
def settings(azure: AzureStorage, tmp_path: Path) -> EmbeddedSettings:
    return EmbeddedSettings(folder=tmp_path / "context", instance_id=INSTANCE, api_key=SecretStr("a-key-for-tests"), azure=azure)


async def stored(azure: AzureStorage) -> list[dict[str, Any]]:
    async with CosmosClient(azure.cosmos_endpoint, COSMOS_KEY, enable_endpoint_discovery=False) as client:
        container = client.get_database_client(azure.database).get_container_client("Context")
        assert (await container.read())["partitionKey"]["paths"] == ["/upn"]
        return [document async for document in container.read_all_items()]


@pytest.mark.parametrize("name", CHECKS)
async def test_conformance(name: str, ground: Ground) -> None:
    assert await run_check(name, ground) is None


async def test_records_and_bytes_lie_where_the_platform_looks_for_them(ground: Ground, azure: AzureStorage) -> None:
    """Container `Context`, nulls left out, the UPN as partition in its own case; bytes below the normalised UPN."""
    kept = await ground.put("notes.tar.txt", b"hello")
    (record,) = await stored(azure)
    path = f"file/users/dana-scott-contoso-example/{ground.conversation_id}/{kept.id}.txt"
    assert record["upn"] == "Dana.Scott@contoso.example"
    assert (record["type"], record["file_path"], record["deleted"]) == ("file-record", path, False)
    assert "updated_at" not in record
    async with ContainerClient(azure.blob_endpoint, INSTANCE, credential=AZURITE_KEY) as container:
        assert await (await container.download_blob(path)).readall() == b"hello"


async def test_a_deleted_file_keeps_its_record_and_loses_its_bytes(ground: Ground, azure: AzureStorage) -> None:
    kept = await ground.put("notes.txt", b"hello")
    await ground.client.delete_file_record(ground.user, kept.id)
    (record,) = await stored(azure)
    assert (record["deleted"], record["updated_by"]) == (True, ground.user.upn)
    async with ContainerClient(azure.blob_endpoint, INSTANCE, credential=AZURITE_KEY) as container:
        assert not await container.get_blob_client(record["file_path"]).exists()


async def test_two_servers_share_the_accounts(
    settings: EmbeddedSettings, provider: SandboxProvider, tmp_path: Path, ground: Ground, user: UserIdentity
) -> None:
    """What one replica has kept, another one with its own folder reads."""
    kept = await ground.put("notes.txt", b"hello")
    other = settings.model_copy(update={"folder": tmp_path / "other"})
    async with open_app(other, providers={DEFAULT_PROVIDER_NAME: provider}) as second:
        transport = httpx.ASGITransport(app=second, raise_app_exceptions=False)
        key = settings.api_key.get_secret_value()
        async with ContextClient(base_url="http://context", api_key=key, instance_id=INSTANCE, transport=transport) as client:
            assert (await client.file_content(user, kept.id)).content == b"hello"


async def test_large_files_come_back_unchanged(ground: Ground) -> None:
    content = bytes(range(256)) * 40_000
    kept = await ground.put("data.zip", b"PK\x03\x04" + content)
    assert (await ground.client.file_content(ground.user, kept.id)).content == b"PK\x03\x04" + content


BAD_PATHS = ("file/users/ann/../bob/x.txt", "file/users/a/./x", "users/ann\\..\\bob/x", "file/\ud83d", "file/" + "x" * 1100)


@pytest.mark.parametrize("path", BAD_PATHS, ids=["up", "here", "backslash", "half", "long"])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(Problem, match="no name for a blob"):
        blob_name(path)
