"""Who deploys: the Azure identity of whoever runs the command, asked once for each place."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.core.credentials_async import AsyncTokenCredential
from azure.identity.aio import DefaultAzureCredential


@asynccontextmanager
async def open_identity() -> AsyncIterator[AsyncTokenCredential]:
    """Yield the identity: the environment's service principal, a workload or managed identity, or whoever did `az login`."""
    async with DefaultAzureCredential(exclude_interactive_browser_credential=True) as credential:
        yield credential


def trusted_certificates() -> str | bool:
    """Return the certificates to trust: `SSL_CERT_FILE`, or the machine's."""
    return os.environ.get("SSL_CERT_FILE") or True
