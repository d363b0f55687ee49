"""The platform's App Configuration, for writing: single entries without a label, each with the state it was read in."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from azure.appconfiguration import ConfigurationSetting, ResourceReadOnlyError, SecretReferenceConfigurationSetting
from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core import MatchConditions
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from orchestration_service.deploying.azure_errors import REQUEST_SECONDS, RETRIES, translated
from orchestration_service.deploying.errors import ChangedMeanwhile, DeploymentError, Refused

_ROLE = "'App Configuration Data Owner' on the store ('App Configuration Data Reader' for plan and verify)"


@dataclass(frozen=True)
class Entry:
    """One entry."""

    key: str
    """Its key."""

    value: str
    """Its value; for a reference to a secret the JSON with the secret's address."""

    content_type: str
    """Media type of the value."""

    etag: str | None = None
    """Which state of it this is; None for one that is still to be made."""


@dataclass(frozen=True)
class AppConfigurationStore:
    """The store, open. Made by `open_configuration_store`."""

    address: str
    """Where it is."""

    _client: AzureAppConfigurationClient

    async def get(self, key: str) -> Entry | None:
        """Return an entry, None when there is none."""
        try:
            found: Any = await self._client.get_configuration_setting(key)
        except ResourceNotFoundError:
            return None
        except AzureError as error:
            raise self._told(error) from error
        return Entry(key, _value_of(found), found.content_type or "", found.etag)

    async def put(self, entry: Entry) -> None:
        """Write an entry if it is still what it was when it was read; one without a state must not be there.

        Raises:
            ChangedMeanwhile: It is another one now.
            Refused: It is locked.
        """
        setting = ConfigurationSetting(key=entry.key, value=entry.value, content_type=entry.content_type)
        try:
            if entry.etag is None:
                await self._client.add_configuration_setting(setting)
            else:
                await self._client.set_configuration_setting(setting, MatchConditions.IfNotModified, etag=entry.etag)
        except (ResourceModifiedError, ResourceExistsError) as error:
            raise _changed(entry.key) from error
        except AzureError as error:
            raise _locked(entry.key) if isinstance(error, ResourceReadOnlyError) else self._told(error) from error

    async def delete(self, entry: Entry) -> None:
        """Delete an entry if it is still what it was when it was read; one that is gone already is fine.

        Raises:
            ChangedMeanwhile: It is another one now.
            Refused: It is locked.
        """
        try:
            await self._client.delete_configuration_setting(entry.key, etag=entry.etag or "", match_condition=MatchConditions.IfNotModified)
        except ResourceNotFoundError:
            return
        except ResourceModifiedError as error:
            raise _changed(entry.key) from error
        except AzureError as error:
            raise _locked(entry.key) if isinstance(error, ResourceReadOnlyError) else self._told(error) from error

    def _told(self, error: AzureError) -> DeploymentError:
        return translated(error, f"App Configuration at {self.address!r}", _ROLE)


@asynccontextmanager
async def open_configuration_store(
    address: str, credential: AsyncTokenCredential, *, trusted: str | bool = True
) -> AsyncIterator[AppConfigurationStore]:
    """Open the store; nothing is asked of it yet.

    Args:
        address: Of the store, `https://NAME.azconfig.io`.
        credential: Who asks.
        trusted: File with the certificates to trust, where it is not the machine's.
    """
    limits = {"connection_timeout": REQUEST_SECONDS, "read_timeout": REQUEST_SECONDS, "retry_total": RETRIES}
    async with AzureAppConfigurationClient(address, credential, connection_verify=trusted, **limits) as client:
        yield AppConfigurationStore(address, client)


def _value_of(found: Any) -> str:
    """The value; a reference in one form, since the client writes its JSON anew."""
    if isinstance(found, SecretReferenceConfigurationSetting) and found.secret_id:
        return json.dumps({"uri": found.secret_id}, separators=(",", ":"))
    return found.value or ""


def _changed(key: str) -> ChangedMeanwhile:
    return ChangedMeanwhile(f"The entry {key!r} was changed by somebody else meanwhile. Run the command again.")


def _locked(key: str) -> Refused:
    return Refused(f"The entry {key!r} is locked. Unlock it: az appconfig kv unlock --key {key!r} --name STORE.", 409)
