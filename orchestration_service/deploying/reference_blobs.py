"""The platform's container of resources: blobs, and the list of references beside them, changed without losing what others write.

The platform holds a lease on a list while it writes it, and other deployments write with their own; both show as a refused condition, and
the list is then read and merged again (contract: portals and deployment §1.2, trap 6).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from azure.core import MatchConditions
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import ContentSettings
from azure.storage.blob.aio import ContainerClient

from deployment_templates.resources.references import REFERENCES, ReferenceEntry
from orchestration_service.deploying.azure_errors import REQUEST_SECONDS, RETRIES, translated
from orchestration_service.deploying.errors import ChangedMeanwhile, DeploymentError, Refused
from orchestration_service.deploying.reference_lists import parsed, with_reference, without_reference

_Change = Callable[[str | None, str], dict[str, Any]]
"""Makes the content of a list from its text and its name."""

MERGE_TRIES = 6
_FIRST_PAUSE_SECONDS = 0.2
_ROLE = "'Storage Blob Data Contributor' on the storage account of the platform"


@dataclass(frozen=True)
class Blob:
    """One blob, read."""

    content: bytes
    """Its bytes."""

    etag: str
    """Which state of it this is."""


@dataclass(frozen=True)
class ReferenceBlobs:
    """The container `resource-provider`, open. Made by `open_reference_blobs`."""

    _container: ContainerClient

    async def read(self, name: str) -> Blob | None:
        """Return a blob, None when it is not there."""
        try:
            download = await self._container.download_blob(name)
            return Blob(await download.readall(), download.properties.etag)
        except ResourceNotFoundError as error:
            if getattr(error, "error_code", None) == "ContainerNotFound":
                raise self._told(error) from error
            return None
        except AzureError as error:
            raise self._told(error) from error

    async def write(self, name: str, content: bytes, etag: str | None) -> str:
        """Write a blob if it is still what it was, and return its new state.

        Args:
            name: Of the blob.
            content: Its bytes.
            etag: The state it was read in; None when it was not there.

        Raises:
            ChangedMeanwhile: It is another one now, or somebody holds it.
        """
        condition: dict[str, Any] = {"overwrite": False}
        if etag is not None:
            condition = {"overwrite": True, "etag": etag, "match_condition": MatchConditions.IfNotModified}
        kind = ContentSettings(content_type="application/json")
        try:
            written = await self._container.upload_blob(name, content, content_settings=kind, **condition)
            return str((await written.get_blob_properties()).etag)
        except (ResourceModifiedError, ResourceExistsError) as error:
            raise _changed(name) from error
        except AzureError as error:
            raise _changed(name) if _is_held(error) else self._told(error) from error

    async def delete(self, name: str, etag: str) -> None:
        """Delete a blob if it is still what it was; one that is gone already is fine.

        Raises:
            ChangedMeanwhile: It is another one now, or somebody holds it.
        """
        try:
            await self._container.delete_blob(name, etag=etag, match_condition=MatchConditions.IfNotModified)
        except ResourceNotFoundError:
            return
        except ResourceModifiedError as error:
            raise _changed(name) from error
        except AzureError as error:
            raise _changed(name) if _is_held(error) else self._told(error) from error

    async def merge(self, reference: ReferenceEntry) -> bool:
        """Put one reference into its provider's list, in the place of one of the same name; everything else in the list stays.

        Returns:
            Whether anything had to be written.

        Raises:
            ChangedMeanwhile: Others wrote the list each time we tried.
            Refused: The list cannot be understood, or another kind of resource has the name.
        """
        return await self._change(_list_of(reference), lambda text, name: with_reference(text, reference, name=name))

    async def strip(self, reference: ReferenceEntry) -> bool:
        """Take one reference out of its provider's list; everything else in the list stays.

        Returns:
            Whether it was there.

        Raises:
            ChangedMeanwhile: Others wrote the list each time we tried.
            Refused: The list cannot be understood.
        """
        return await self._change(_list_of(reference), lambda text, name: without_reference(text, reference, name=name))

    async def is_listed(self, reference: ReferenceEntry) -> bool:
        """Tell whether a provider's list has exactly this reference."""
        return await self._changed(_list_of(reference), lambda text, name: with_reference(text, reference, name=name)) is None

    async def is_named(self, reference: ReferenceEntry) -> bool:
        """Tell whether a provider's list has a reference of this name and kind, be it marked as deleted."""
        changed = await self._changed(_list_of(reference), lambda text, name: without_reference(text, reference, name=name))
        return changed is not None

    async def _change(self, name: str, change: _Change) -> bool:
        for attempt in range(MERGE_TRIES):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE_SECONDS * attempt)
            changed = await self._changed(name, change)
            if changed is None:
                return False
            try:
                await self.write(name, changed.content, changed.etag or None)
            except ChangedMeanwhile:
                continue
            return True
        raise ChangedMeanwhile(f"{name!r} was written by others {MERGE_TRIES} times while it was to be changed. Run the command again.")

    async def _changed(self, name: str, change: _Change) -> Blob | None:
        """The list after a change, with the state it was read in; None when the change changes nothing."""
        blob = await self.read(name)
        try:
            text = None if blob is None else blob.content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refused(f"{name!r} is no text ({error}); it is left as it is. Put it right first.", status=0) from error
        after = change(text, name)
        return None if after == parsed(text, name=name) else Blob(json.dumps(after).encode(), "" if blob is None else blob.etag)

    def _told(self, error: AzureError) -> DeploymentError:
        return translated(error, f"the container {self._container.url!r}", _ROLE)


@asynccontextmanager
async def open_reference_blobs(
    address: str, container: str, credential: AsyncTokenCredential | str, *, trusted: str | bool = True
) -> AsyncIterator[ReferenceBlobs]:
    """Open the container; nothing is asked of it yet.

    Args:
        address: Blob service of the platform's storage account.
        container: Name of the container.
        credential: Who asks; an account key for an emulator.
        trusted: File with the certificates to trust, where it is not the machine's.
    """
    client = ContainerClient(
        address,
        container,
        credential,
        connection_timeout=REQUEST_SECONDS,
        read_timeout=REQUEST_SECONDS,
        retry_total=RETRIES,
        initial_backoff=1,  # by default the first of them waits a quarter of a minute
        increment_base=2,
        connection_verify=trusted,
    )
    async with client:
        yield ReferenceBlobs(client)


def _list_of(reference: ReferenceEntry) -> str:
    return f"{reference.Filename.split('/')[1]}/{REFERENCES}"


def _is_held(error: AzureError) -> bool:
    codes = {"LeaseIdMissing", "LeaseAlreadyPresent", "ConditionNotMet", "BlobAlreadyExists"}
    return (
        isinstance(error, HttpResponseError)
        and not isinstance(error, ClientAuthenticationError)
        and getattr(error, "error_code", None) in codes
    )


def _changed(name: str) -> ChangedMeanwhile:
    return ChangedMeanwhile(f"{name!r} was written by somebody else meanwhile. Run the command again.")
