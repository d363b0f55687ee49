"""Opens the accounts: the only place that knows how their clients are made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.identity.aio import DefaultAzureCredential
from azure.storage.blob.aio import ContainerClient

from orchestration_service.operations.blob import BLOCK_BYTES, LargeValues
from orchestration_service.operations.cosmos_documents import Documents
from orchestration_service.operations.cosmos_errors import translate
from orchestration_service.operations.cosmos_settings import CosmosSettings
from orchestration_service.operations.cosmos_storage import CosmosStorage

EXPIRE_BY_DOCUMENT = -1
"""A container's time to live that leaves it to each document's own."""
INDEXING: Mapping[str, Any] = {
    "indexingMode": "consistent",
    "includedPaths": [
        {"path": f"/{name}/?"} for name in ("kind", "direction", "sequence", "last", "is_finished", "updated_at", "turn", "pk")
    ],
    "excludedPaths": [{"path": "/*"}],
}
"""Only what queries name is indexed: writes cost less than half, most of what is written are bodies nobody searches."""


@asynccontextmanager
async def open_storage(settings: CosmosSettings, clock: Callable[[], datetime]) -> AsyncIterator[CosmosStorage]:
    """Connect to both accounts until the end of the block.

    Raises:
        StoreError: An account does not answer, refuses us, or lacks its container.
    """
    where = f"{settings.endpoint}/{settings.database}/{settings.container}"
    async with AsyncExitStack() as stack:
        identity: DefaultAzureCredential | None = None
        if settings.key is None or settings.blob_key is None:
            identity = await stack.enter_async_context(DefaultAzureCredential())
        try:
            cosmos = _cosmos(settings, identity)
            stack.push_async_callback(cosmos.close)  # entering asks the account; when that fails, it leaves its connections open
            await cosmos.__aenter__()
            container = await _container(cosmos, settings)
            blobs = await stack.enter_async_context(_blobs(settings, identity))
            await _demand_blobs(blobs, make=settings.create_missing)
        except AzureError as error:
            raise translate(error, repr(where)) from error
        documents = Documents(container, where=repr(where), patience_seconds=settings.patience_seconds)
        yield CosmosStorage(documents, LargeValues(blobs, inline_bytes=settings.inline_bytes), settings, clock)


def _cosmos(settings: CosmosSettings, identity: DefaultAzureCredential | None) -> CosmosClient:
    return CosmosClient(
        settings.endpoint,
        settings.key.get_secret_value() if settings.key else identity,  # type: ignore[arg-type]  # one of them is there
        enable_endpoint_discovery=not settings.is_local,  # an emulator names addresses nobody can reach
        connection_timeout=settings.request_seconds,
        read_timeout=settings.request_seconds,
        retry_total=1,  # of lost connections; `Documents` goes on from there
    )


def _blobs(settings: CosmosSettings, identity: DefaultAzureCredential | None) -> ContainerClient:
    return ContainerClient(
        settings.blob_endpoint,
        settings.blob_container,
        settings.blob_key.get_secret_value() if settings.blob_key else identity,
        max_single_put_size=BLOCK_BYTES,
        max_block_size=BLOCK_BYTES,
        connection_timeout=settings.request_seconds,
        read_timeout=settings.request_seconds,
        retry_total=max(1, int(settings.patience_seconds // 5)),
    )


async def _container(cosmos: CosmosClient, settings: CosmosSettings) -> ContainerProxy:
    if not settings.create_missing:
        container = cosmos.get_database_client(settings.database).get_container_client(settings.container)
        await container.read()
        return container
    database = await cosmos.create_database_if_not_exists(settings.database)
    return await database.create_container_if_not_exists(
        settings.container,
        partition_key=PartitionKey(path="/pk"),
        default_ttl=EXPIRE_BY_DOCUMENT,
        indexing_policy=dict(INDEXING),
    )


async def _demand_blobs(blobs: ContainerClient, *, make: bool) -> None:
    if not make:
        await blobs.get_container_properties()
        return
    try:
        await blobs.create_container()
    except ResourceExistsError:
        return
