"""Who deploys: the Azure identity of whoever runs the command, asked once for each place."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError
from azure.identity.aio import DefaultAzureCredential

from orchestration_service.deploying.azure_errors import first_line
from orchestration_service.deploying.errors import NotSignedIn

_MARGIN_SECONDS = 120.0


@asynccontextmanager
async def open_identity() -> AsyncIterator[AsyncTokenCredential]:
    """Yield the identity: the environment's service principal, a workload or managed identity, or whoever did `az login`."""
    async with DefaultAzureCredential(exclude_interactive_browser_credential=True) as credential:
        yield credential


class Token:
    """The identity's token for one place, asked for again shortly before it expires: the Azure command line takes a second for each."""

    def __init__(self, credential: AsyncTokenCredential, scope: str) -> None:
        self.scope = scope
        self._credential = credential
        self._known: AccessToken | None = None

    async def value(self) -> str:
        """Return the token.

        Raises:
            NotSignedIn: There is none to be had.
        """
        if self._known is None or self._known.expires_on - time.time() < _MARGIN_SECONDS:
            try:
                self._known = await self._credential.get_token(self.scope)
            except AzureError as error:
                raise NotSignedIn(
                    f"No token for {self.scope!r}: {first_line(error)}. Sign in with 'az login --scope {self.scope}', or run where there "
                    "is a managed identity that is admitted there."
                ) from error
        return self._known.token


def trusted_certificates() -> str | bool:
    """Return the certificates to trust: `SSL_CERT_FILE`, or the machine's."""
    return os.environ.get("SSL_CERT_FILE") or True
