"""The embedded Context API without its web part: stores, files, sessions, and the lines to sandboxes."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio.to_thread

from context_client.embedded.azure_settings import AzureStorage
from context_client.embedded.blobs import open_blobs
from context_client.embedded.files import FileService
from context_client.embedded.lines import open_lines
from context_client.embedded.problems import STORE, thrown
from context_client.embedded.provider import SandboxProvider
from context_client.embedded.records import open_records
from context_client.embedded.sessions import SessionService
from context_client.embedded.settings import EmbeddedSettings
from context_client.embedded.storage import Blobs, Records

if TYPE_CHECKING:
    from context_client.embedded.azure_storage import AzureStores


@dataclass(frozen=True, kw_only=True)
class ContextService:
    """Everything the routes need; get one from `open_service`."""

    files: FileService
    """Files of users."""

    sessions: SessionService
    """Code sessions."""

    blobs: Blobs
    """Where incoming bytes wait and stored ones lie."""


@asynccontextmanager
async def open_service(settings: EmbeddedSettings, *, providers: Mapping[str, SandboxProvider]) -> AsyncIterator[ContextService]:
    """Open the stores and hold the lines to sandboxes until the end of the block.

    Args:
        settings: The server's settings.
        providers: Where sandboxes come from, by wire name; their owner opens and closes them.

    Raises:
        Problem: The accounts in the settings cannot be used, or the packages for them are not installed.
    """
    async with AsyncExitStack() as stack:
        records, blobs = await _open_storage(settings, stack)
        lines = await stack.enter_async_context(open_lines(answer_limit=settings.answer_limit_bytes))
        files = FileService(records=records, blobs=blobs, instance_id=settings.instance_id, policy=settings.files)
        sessions = SessionService(records=records, blobs=blobs, files=files, lines=lines, providers=dict(providers), settings=settings)
        yield ContextService(files=files, sessions=sessions, blobs=blobs)


async def _open_storage(settings: EmbeddedSettings, stack: AsyncExitStack) -> tuple[Records, Blobs]:
    if settings.azure is not None:
        open_azure = await anyio.to_thread.run_sync(_azure)  # importing takes a second
        stores = await stack.enter_async_context(open_azure(settings, settings.azure))
        return stores.records, stores.blobs
    blobs = await stack.enter_async_context(open_blobs(settings.folder, settings.instance_id))
    records = await stack.enter_async_context(open_records(settings.folder / "records.sqlite3", settings.instance_id))
    return records, blobs


def _azure() -> Callable[[EmbeddedSettings, AzureStorage], AbstractAsyncContextManager[AzureStores]]:
    """Import what only this choice needs."""
    try:
        importlib.import_module("aiohttp")  # the clients' transport, which they import only when they connect
        from context_client.embedded.azure_storage import open_azure
    except ModuleNotFoundError as error:
        raise thrown(STORE, f"the packages for Azure are not installed ({error.name!r} is missing); install the extra 'azure'") from error
    return open_azure
