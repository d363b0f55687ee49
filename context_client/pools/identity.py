"""Tokens for session pools from the process's own Azure identity; needs the extra `azure`."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.identity.aio import DefaultAzureCredential

from context_client.pools.tokens import EntraTokens


@asynccontextmanager
async def own_identity() -> AsyncIterator[EntraTokens]:
    """Open the identity: workload identity, managed identity, or whoever is signed in on a developer's machine.

    Raises:
        ModuleNotFoundError: The extra is not installed whole.
    """
    importlib.import_module("aiohttp")  # the identity's transport, which it imports only when it connects
    async with DefaultAzureCredential() as credential:
        yield EntraTokens(credential)
