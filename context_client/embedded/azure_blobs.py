"""Files' bytes as the platform keeps them: in the Blob container named like the instance, under the record's `file_path`.

Paths hold conversation ids as they came. In an address, `..` would lead into another user's folder before the account sees
it, so a path with such a step is refused; everything else is one flat name. Bytes on their way in wait in a local spool, as in
`blobs.py`, since they are judged before they are stored.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from context_client.embedded.blobs import BlobFolder, Spool
from context_client.embedded.problems import Problem, thrown

_CHUNK = 1024 * 1024
_STORAGE = "RequestFailedException"


class BlobContainer:
    """Blobs of one instance.

    Args:
        container: The platform's blob container.
        incoming: Where bytes wait until they are stored.
        folder: A folder of ours on the same disk.
    """

    def __init__(self, container: ContainerClient, incoming: BlobFolder, folder: Path) -> None:
        self._container = container
        self._incoming = incoming
        self._folder = folder

    def spool(self) -> AbstractAsyncContextManager[Spool]:
        """Take bytes in; what was not stored by the end is gone."""
        return self._incoming.spool()

    async def store(self, spool: Spool, file_path: str, *, as_text: bool) -> None:
        """Keep a spool's bytes under a record's path; text becomes UTF-8.

        Raises:
            Problem: 500 where the account refuses them or does not answer.
            OSError: The local disk takes no more.
        """
        name, whole = blob_name(file_path), self._folder / f"{secrets.token_hex(16)}.whole"
        try:
            await anyio.to_thread.run_sync(lambda: spool.move_to(whole, as_text=as_text))
            size = await anyio.to_thread.run_sync(lambda: whole.stat().st_size)
            await self._container.upload_blob(name, _pieces(whole), length=size, overwrite=True)
        except AzureError as error:
            raise _problem("the file's bytes could not be stored", error) from error
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: whole.unlink(missing_ok=True))

    async def size(self, file_path: str) -> int | None:
        """Read a blob's length; None if there is none."""
        try:
            return int((await self._container.get_blob_client(blob_name(file_path)).get_blob_properties()).size)
        except ResourceNotFoundError:
            return None
        except AzureError as error:
            raise _problem("the file's bytes could not be found", error) from error

    async def chunks(self, file_path: str) -> AsyncIterator[bytes]:
        """Read a blob piece by piece."""
        try:
            download = await self._container.download_blob(blob_name(file_path))
            async for piece in download.chunks():
                yield piece
        except AzureError as error:
            raise _problem("the file's bytes could not be read", error) from error

    async def remove(self, file_path: str) -> None:
        """Delete a blob for good, with its snapshots; an absent one is fine."""
        try:
            await self._container.delete_blob(blob_name(file_path), delete_snapshots="include")
        except ResourceNotFoundError:
            return
        except AzureError as error:
            raise _problem("the file's bytes could not be deleted", error) from error


def blob_name(file_path: str) -> str:
    """Return the name of a record's blob; older records lack the first folder, and the real server adds it.

    Raises:
        Problem: 500 for a path that leads elsewhere, or cannot be a name.
    """
    name = file_path if file_path.startswith("file/") else f"file/{file_path}"
    steps = name.replace("\\", "/").split("/")
    if {".", ".."} & set(steps) or len(name) > 1024 or name != name.encode("utf-8", "replace").decode():
        raise thrown(_STORAGE, f"no name for a blob: {file_path[:100]!r}; choose another conversation or agent name")
    return name


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        while piece := await file.read(_CHUNK):
            yield piece


def _problem(what: str, error: AzureError) -> Problem:
    return thrown(_STORAGE, f"{what}: {str(error.message).splitlines()[0][:200]}")
