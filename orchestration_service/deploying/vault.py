"""The platform's Key Vault, for writing. A secret's value is compared and written here and appears nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.keyvault.secrets.aio import SecretClient
from pydantic import SecretStr

from context_client.embedded.azure_settings import is_on_this_machine
from orchestration_service.deploying.azure_errors import REQUEST_SECONDS, RETRIES, translated
from orchestration_service.deploying.errors import DeploymentError, NameTaken, Unreachable

_ROLE = "'Key Vault Secrets Officer' on the vault ('Key Vault Secrets User' for plan and verify)"
_WAIT_SECONDS = 90
"""How long a vault may take to delete or recover a secret; it takes some seconds."""


@dataclass(frozen=True)
class VaultStore:
    """The vault, open. Made by `open_vault`."""

    address: str
    """Where it is."""

    _client: SecretClient

    async def get(self, name: str) -> SecretStr | None:
        """Return a secret, None when there is none (or a deleted one)."""
        try:
            return SecretStr((await self._client.get_secret(name)).value or "")
        except ResourceNotFoundError:
            return None
        except AzureError as error:
            raise self._told(error) from error

    async def put(self, name: str, value: SecretStr) -> None:
        """Write a secret, as a new version where there is one. A deleted one of the same name is recovered first.

        Raises:
            NameTaken: A deleted secret has the name, and cannot be recovered.
        """
        try:
            await self._client.set_secret(name, value.get_secret_value())
        except ResourceExistsError:
            await self._recover(name)
            await self.put(name, value)
        except AzureError as error:
            raise self._told(error) from error

    async def delete(self, name: str) -> None:
        """Delete a secret; the vault keeps it for its retention time. One that is gone already is fine."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._client.delete_secret(name)
        except ResourceNotFoundError:
            return
        except TimeoutError as error:
            raise _slow(name, "deleted") from error
        except AzureError as error:
            raise self._told(error) from error

    async def _recover(self, name: str) -> None:
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._client.recover_deleted_secret(name)
        except ResourceNotFoundError:
            return  # it was purged in between
        except TimeoutError as error:
            raise _slow(name, "recovered") from error
        except HttpResponseError as error:
            if error.status_code == 403:
                command = f"az keyvault secret purge --name {name}"
                raise NameTaken(
                    f"A deleted secret {name!r} holds the name, and this identity may not recover it. Purge it ({command}), or wait until "
                    "its retention time is over.",
                    409,
                ) from error
            raise self._told(error) from error
        except AzureError as error:
            raise self._told(error) from error

    def _told(self, error: AzureError) -> DeploymentError:
        return translated(error, f"the Key Vault at {self.address!r}", _ROLE)


@asynccontextmanager
async def open_vault(address: str, credential: AsyncTokenCredential, *, trusted: str | bool = True) -> AsyncIterator[VaultStore]:
    """Open the vault; nothing is asked of it yet.

    Args:
        address: Of the vault, `https://NAME.vault.azure.net`.
        credential: Who asks.
        trusted: File with the certificates to trust, where it is not the machine's.
    """
    async with SecretClient(
        address,
        credential,
        verify_challenge_resource=not is_on_this_machine(address),  # an emulator is nowhere below the vaults' domain
        connection_verify=trusted,
        connection_timeout=REQUEST_SECONDS,
        read_timeout=REQUEST_SECONDS,
        retry_total=RETRIES,
    ) as client:
        yield VaultStore(address, client)


def _slow(name: str, what: str) -> Unreachable:
    return Unreachable(f"The secret {name!r} is still not {what} after {_WAIT_SECONDS} seconds. Run the command again in a minute.")
