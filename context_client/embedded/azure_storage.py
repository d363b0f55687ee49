"""Opens records and blobs in the platform's accounts."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.identity.aio import DefaultAzureCredential
from azure.storage.blob.aio import ContainerClient

from context_client.embedded.azure_blobs import BlobContainer
from context_client.embedded.azure_records import CosmosRecords
from context_client.embedded.azure_settings import AzureStorage, is_on_this_machine
from context_client.embedded.blobs import open_blobs
from context_client.embedded.problems import STORE, thrown
from context_client.embedded.settings import EmbeddedSettings

_BLOCK_BYTES = 1024 * 1024
"""Uploads go in pieces of this size: larger ones hold up the event loop while they are sent."""


@dataclass(frozen=True)
class AzureStores:
    """Both stores, opened."""

    records: CosmosRecords
    """Records of the instance."""

    blobs: BlobContainer
    """Files' bytes of the instance."""


@asynccontextmanager
async def open_azure(settings: EmbeddedSettings, azure: AzureStorage) -> AsyncIterator[AzureStores]:
    """Connect to both accounts until the end of the block.

    Raises:
        Problem: An account does not answer, refuses us, or lacks its container.
    """
    async with AsyncExitStack() as stack:
        identity: DefaultAzureCredential | None = None
        if azure.cosmos_key is None or azure.blob_key is None:
            identity = await stack.enter_async_context(DefaultAzureCredential())
        incoming = await stack.enter_async_context(open_blobs(settings.folder, settings.instance_id))
        try:
            cosmos = _cosmos(azure, identity)
            stack.push_async_callback(cosmos.close)  # entering asks the account; when that fails, it leaves its connections open
            await cosmos.__aenter__()
            container = await _container(cosmos, azure)
            blobs = await stack.enter_async_context(_blobs(azure, identity, settings.instance_id.lower()))
            await _demand(blobs, make=azure.create_missing)
        except AzureError as error:
            raise thrown(STORE, f"the platform's storage cannot be used: {str(error.message).splitlines()[0][:300]}") from error
        yield AzureStores(CosmosRecords(container, settings.instance_id), BlobContainer(blobs, incoming, settings.folder / "incoming"))


def _cosmos(azure: AzureStorage, identity: DefaultAzureCredential | None) -> CosmosClient:
    return CosmosClient(
        azure.cosmos_endpoint,
        azure.cosmos_key.get_secret_value() if azure.cosmos_key else identity,  # type: ignore[arg-type]  # one of them is there
        enable_endpoint_discovery=not is_on_this_machine(azure.cosmos_endpoint),  # emulators name addresses nobody can reach
        connection_timeout=azure.request_seconds,
        read_timeout=azure.request_seconds,
    )


def _blobs(azure: AzureStorage, identity: DefaultAzureCredential | None, name: str) -> ContainerClient:
    return ContainerClient(
        azure.blob_endpoint,
        name,
        azure.blob_key.get_secret_value() if azure.blob_key else identity,
        max_single_put_size=_BLOCK_BYTES,
        max_block_size=_BLOCK_BYTES,
        connection_timeout=azure.request_seconds,
        read_timeout=azure.request_seconds,
    )


async def _container(cosmos: CosmosClient, azure: AzureStorage) -> ContainerProxy:
    if not azure.create_missing:
        container = cosmos.get_database_client(azure.database).get_container_client(azure.container)
        await container.read()
        return container
    database = await cosmos.create_database_if_not_exists(azure.database)
    return await database.create_container_if_not_exists(azure.container, partition_key=PartitionKey(path="/upn"))


async def _demand(blobs: ContainerClient, *, make: bool) -> None:
    if not make:
        await blobs.get_container_properties()
        return
    try:
        await blobs.create_container()
    except ResourceExistsError:
        return
