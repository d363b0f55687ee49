"""Values too large for a document, in a Blob container.

A document says either ``body`` (base64 of the compressed bytes) or ``blob`` (the name of one). A blob is written before the
document that names it and never changed, so whoever reads the document finds it; what a crash leaves unnamed is removed with
the operation's other blobs, or by the container's lifecycle rule.
"""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import anyio.to_thread
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from orchestration_service.operations.cosmos_errors import translate

BLOCK_BYTES = 1024 * 1024
"""Uploads go in pieces of this size: larger ones hold up the event loop while they are sent."""
THREAD_BYTES = 64 * 1024
"""From this size on, compressing happens beside the event loop."""


class LargeValues:
    """Packs bytes into documents, or beside them when they are too large.

    Args:
        container: The blob container.
        inline_bytes: Largest packed value that stays inside the document.
    """

    def __init__(self, container: ContainerClient, *, inline_bytes: int) -> None:
        self._container = container
        self._inline_bytes = inline_bytes
        self._where = repr(container.url)

    async def pack(self, folder: str, data: bytes) -> dict[str, Any]:
        """Return what a document has to say so that `unpack` finds ``data``; stores a blob below ``folder`` if it is large.

        Raises:
            StoreError: The blob could not be written.
        """
        if len(data) >= THREAD_BYTES:
            packed = await anyio.to_thread.run_sync(zlib.compress, data, 1)
        else:
            packed = zlib.compress(data, 1)
        if len(packed) * 4 // 3 <= self._inline_bytes:
            return {"body": base64.b64encode(packed).decode("ascii")}
        name = f"{folder}/{uuid.uuid4().hex}"
        try:
            await self._container.upload_blob(name, packed, overwrite=True)
        except AzureError as error:
            raise translate(error, self._where) from error
        return {"blob": name}

    async def unpack(self, packed: Mapping[str, Any]) -> bytes:
        """Return the bytes of a document.

        Raises:
            StoreError: The blob is gone or cannot be read.
        """
        if "body" in packed:
            data = base64.b64decode(packed["body"])
        else:
            try:
                download = await self._container.download_blob(packed["blob"])
                data = await download.readall()
            except AzureError as error:
                raise translate(error, self._where) from error
        if len(data) >= THREAD_BYTES:
            return await anyio.to_thread.run_sync(zlib.decompress, data)
        return zlib.decompress(data)

    async def forget(self, packed: Mapping[str, Any]) -> None:
        """Remove the blob of a document, if it has one and it is there."""
        if "blob" not in packed:
            return
        try:
            await self._container.delete_blob(packed["blob"])
        except ResourceNotFoundError:
            return
        except AzureError as error:
            raise translate(error, self._where) from error
