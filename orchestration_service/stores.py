"""Which store the operator has chosen: SQLite in the data folder, or Cosmos DB and Blob storage; with or without the State API.

What belongs to Azure is imported when it is chosen and not before: an installation without the extra is whole.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from context_client.embedded.azure_settings import AzureStorage
from context_client.embedded.problems import Problem
from orchestration_service.errors import SettingsError, StoreUnusable
from orchestration_service.operations import OperationStore, SqliteOperations
from orchestration_service.operations.cosmos_settings import CosmosSettings
from orchestration_service.operations.state_api import StateApiSettings, mirrored
from orchestration_service.settings import PREFIX, Settings

if TYPE_CHECKING:
    from orchestration_service.operations.cosmos import CosmosOperations

T = TypeVar("T")

OPERATIONS_FILE = "operations.sqlite"
_ANSWERS_KEPT_DAYS = 30
"""How long Cosmos DB keeps operations and their answers at least; SQLite keeps them for good."""


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[OperationStore]:
    """Open the chosen store until the end of the block.

    Raises:
        SettingsError: Azure is chosen, and the packages for it are not installed.
        StoreError: The data folder or an account cannot be used.
    """
    async with AsyncExitStack() as stack:
        store = await _open_chosen(settings, stack)
        mirror = state_api(settings)
        if mirror is not None:
            store = await stack.enter_async_context(mirrored(store, mirror, instance_id=settings.instance_id))
        yield store


def operations_account(settings: Settings) -> CosmosSettings | None:
    """Return the operation store's slice of the settings, None for SQLite."""
    if settings.cosmos_endpoint is None or settings.blob_endpoint is None:
        return None
    return CosmosSettings(
        endpoint=settings.cosmos_endpoint,
        key=settings.cosmos_key,
        database=settings.cosmos_database,
        container=settings.cosmos_container,
        blob_endpoint=settings.blob_endpoint,
        blob_key=settings.blob_key,
        blob_container=settings.blob_container,
        create_missing=settings.create_missing_stores,
        operation_days=max(settings.operations_kept_days, _ANSWERS_KEPT_DAYS),
    )


def context_account(settings: Settings) -> AzureStorage | None:
    """Return the embedded Context API's slice of the settings, None for SQLite and a folder."""
    if settings.cosmos_endpoint is None or settings.blob_endpoint is None:
        return None
    return AzureStorage(
        cosmos_endpoint=settings.cosmos_endpoint,
        cosmos_key=settings.cosmos_key,
        database=settings.cosmos_database,
        container=settings.cosmos_context_container,
        blob_endpoint=settings.blob_endpoint,
        blob_key=settings.blob_key,
        create_missing=settings.create_missing_stores,
    )


def state_api(settings: Settings) -> StateApiSettings | None:
    """Return the mirror's slice of the settings, None without one."""
    if settings.state_api_url is None or settings.state_api_key is None:
        return None
    return StateApiSettings(url=settings.state_api_url, api_key=settings.state_api_key)


async def opened(stack: AsyncExitStack, context_api: AbstractAsyncContextManager[T]) -> T:
    """Enter the embedded Context API; what keeps its storage from opening is told as any store's failure is.

    Raises:
        StoreUnusable: An account does not answer, refuses us, or lacks its container.
    """
    try:
        return await stack.enter_async_context(context_api)
    except Problem as error:
        reason = json.loads(error.body)["detail"]
        raise StoreUnusable(
            f"The embedded Context API cannot start: {reason}. Check the accounts' addresses, containers and keys."
        ) from error


async def _open_chosen(settings: Settings, stack: AsyncExitStack) -> OperationStore:
    account = operations_account(settings)
    if account is None:
        return await stack.enter_async_context(SqliteOperations(settings.data_dir / OPERATIONS_FILE))
    store = await anyio.to_thread.run_sync(_cosmos_operations)  # importing takes a second
    return await stack.enter_async_context(store(account))


def _cosmos_operations() -> type[CosmosOperations]:
    try:
        importlib.import_module("aiohttp")  # the clients' transport, which they import only when they connect
        from orchestration_service.operations.cosmos import CosmosOperations
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{PREFIX}COSMOS_ENDPOINT is set, and the packages for Azure are not installed ({error.name!r} is missing). Install "
            "the extra 'azure': pip install 'foundationallm-claude-code[azure]', in a checkout ./dev setup.",
            (f"{PREFIX}COSMOS_ENDPOINT",),
        ) from error
    return CosmosOperations
