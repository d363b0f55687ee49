"""Reads settings and secrets from the platform's Azure App Configuration, as the platform's own services do (contract: orchestration §3.4).

What the store holds of this service becomes settings, below what the environment says. Secrets stay in Key Vault until they are used, and
are asked for again after some minutes, so that a key can be changed without a restart. Needs the extra `azure`.

The library `azure-appconfiguration-provider` does the same in one call. It sleeps on the event loop when it fails, leaves its connections
open then, and looks up every secret of the platform before it begins (seen in 2.5.0); so the two clients below it are used as they are.
"""

import importlib
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from azure.appconfiguration import SecretReferenceConfigurationSetting
from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.identity.aio import DefaultAzureCredential
from azure.keyvault.secrets import KeyVaultSecretIdentifier
from azure.keyvault.secrets.aio import SecretClient
from pydantic import SecretStr

from context_client.embedded.azure_settings import is_on_this_machine
from orchestration_service.errors import SettingsError
from orchestration_service.platform_keys import ADDRESS_VARIABLE, SELECTED, field_of, is_model_key, unknown_keys
from orchestration_service.settings import Settings

_SECRET_SECONDS = 300.0
_RETRIES = 3
_NO_LABEL = "\0"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Reference:
    """A secret that is looked up when somebody asks for it."""

    address: str


@dataclass
class PlatformConfiguration:
    """The store, open. Made by `open_platform_configuration`."""

    _client: AzureAppConfigurationClient
    _credential: AsyncTokenCredential
    _stack: AsyncExitStack
    _trusted: str | bool
    is_away: bool = False
    """Whether it could not be read when that was last tried."""
    _values: Mapping[str, str | _Reference] = field(default_factory=dict)
    _vaults: dict[str, SecretClient] = field(default_factory=dict)
    _secrets: dict[_Reference, tuple[float, SecretStr]] = field(default_factory=dict)

    async def settings(self) -> dict[str, Any]:
        """Return what the store says of this service, by field of `Settings`; secrets are looked up.

        Raises:
            SettingsError: A secret cannot be read.
        """
        found: dict[str, Any] = {}
        for name, key in self.keys().items():
            value = self._values[key]
            found[name] = (await self._secret(key, value)).get_secret_value() if isinstance(value, _Reference) else value
        return found

    def keys(self) -> Mapping[str, str]:
        """Return the store's keys that are settings of this service, by field."""
        named = ((field_of(key, Settings.model_fields), key) for key in self._values)
        return MappingProxyType({name: key for name, key in named if name is not None})

    def unknown_keys(self) -> tuple[str, ...]:
        """Return the keys in this service's section that stand for no setting."""
        return unknown_keys(tuple(self._values), Settings.model_fields)

    async def model_key(self, key: str) -> SecretStr | None:
        """Return the key of a model endpoint, None when the store has none or the name is not one a model's key may have.

        Raises:
            SettingsError: It is there, and cannot be read.
        """
        value = self._values.get(key) if is_model_key(key) else None
        if isinstance(value, _Reference):
            return await self._secret(key, value)
        return SecretStr(value) if value else None

    async def refresh(self) -> bool:
        """Read the store again and tell whether it has changed.

        What cannot be read is told in the log, and what was read before stays.
        """
        before, self.is_away = self._values, False
        try:
            await self._read()
        except AzureError as error:
            self.is_away = True
            _log.warning("App Configuration could not be read again; what was read before stays in force: %s", error)
        return self._values != before

    async def _read(self) -> None:
        values: dict[str, str | _Reference] = {}
        async for setting in self._client.list_configuration_settings(key_filter=",".join(SELECTED), label_filter=_NO_LABEL):
            if isinstance(setting, SecretReferenceConfigurationSetting):
                if setting.secret_id:
                    values[setting.key] = _Reference(setting.secret_id)
            elif setting.value:
                values[setting.key] = setting.value
        self._values = MappingProxyType(values)

    async def _secret(self, key: str, reference: _Reference) -> SecretStr:
        known = self._secrets.get(reference)
        if known is not None and time.monotonic() - known[0] < _SECRET_SECONDS:
            return known[1]
        try:
            address = KeyVaultSecretIdentifier(reference.address)
            vault = await self._vault(address.vault_url)
            found = await vault.get_secret(address.name, version=address.version)
        except (AzureError, ValueError) as error:
            if known is not None:
                _log.warning("The secret of %s could not be read again; the one read before stays in force: %s", key, error)
                return known[1]
            raise _unreadable(key, reference, error) from error
        secret = SecretStr(found.value or "")
        self._secrets[reference] = (time.monotonic(), secret)
        return secret

    async def _vault(self, url: str) -> SecretClient:
        if url not in self._vaults:
            checked = not is_on_this_machine(url)  # an emulator is nowhere below the vaults' domain
            vault = SecretClient(url, self._credential, verify_challenge_resource=checked, connection_verify=self._trusted)
            self._vaults[url] = await self._stack.enter_async_context(vault)
        return self._vaults[url]


@asynccontextmanager
async def open_platform_configuration(
    address: str, *, credential: AsyncTokenCredential | None = None
) -> AsyncIterator[PlatformConfiguration]:
    """Open the store at an address and read it. Certificates are checked against `SSL_CERT_FILE`, where that is set.

    Args:
        address: Of the store, `https://NAME.azconfig.io`.
        credential: Who reads; by default the process's own Azure identity.

    Raises:
        SettingsError: The store cannot be read; the message says what to do.
    """
    if urlsplit(address).scheme != "https":
        raise SettingsError(f"{ADDRESS_VARIABLE} is {address!r}: it must begin with https://", (ADDRESS_VARIABLE,))
    importlib.import_module("aiohttp")  # the clients' transport, which they import only when they connect
    trusted = os.environ.get("SSL_CERT_FILE") or True
    async with AsyncExitStack() as stack:
        reader = credential
        if reader is None:
            reader = DefaultAzureCredential(exclude_environment_credential=True)
            await stack.enter_async_context(reader)
        client = AzureAppConfigurationClient(address, reader, connection_verify=trusted, retry_total=_RETRIES)
        platform = PlatformConfiguration(await stack.enter_async_context(client), reader, stack, trusted)
        try:
            await platform._read()
        except AzureError as error:
            raise SettingsError(
                f"App Configuration at {address!r} could not be read: {error}. Check {ADDRESS_VARIABLE}, and give the service's identity "
                "the role 'App Configuration Data Reader'.",
                (ADDRESS_VARIABLE,),
            ) from error
        yield platform


def _unreadable(key: str, reference: _Reference, error: Exception) -> SettingsError:
    told = f"{key} leads to the secret {reference.address!r}, which"
    if isinstance(error, ResourceNotFoundError):
        return SettingsError(f"{told} is not there. Put it into the vault.", (key,))
    if isinstance(error, AzureError):
        advice = "Give the service's identity the role 'Key Vault Secrets User' on the vault, and let it be reached from here."
        return SettingsError(f"{told} cannot be read: {error}. {advice}", (key,))
    return SettingsError(f"{told} is no address of a secret: {error}. Write https://VAULT.vault.azure.net/secrets/NAME.", (key,))
