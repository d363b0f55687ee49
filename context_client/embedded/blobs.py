"""Files' bytes, in a folder.

A record's `file_path` is the real server's text, conversation id and all, and those are hostile: they may hold `../`,
NUL, or 300 emoji. So no part of it ever names a file here; its hash does. Bytes on their way in wait in a spool:
small ones in memory, others in a file that becomes the blob by a rename, so a blob is whole or absent.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from context_client.embedded.gate import SNIFFED_BYTES
from context_client.embedded.problems import IO, thrown
from context_client.embedded.text import to_utf8

_KEPT_IN_MEMORY = 1024 * 1024
_CHUNK = 1024 * 1024


class Spool:
    """Bytes that came in and have no name yet; get one from `BlobFolder.spool`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending = bytearray()
        self._on_disk = False
        self.size_bytes = 0
        self.start = b""

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append bytes.

        Raises:
            Problem: 500 where the disk takes no more.
        """
        if len(self.start) < SNIFFED_BYTES:
            self.start += bytes(chunk[: SNIFFED_BYTES - len(self.start)])
        self.size_bytes += len(chunk)
        self._pending += chunk
        if len(self._pending) >= _KEPT_IN_MEMORY:
            try:
                await anyio.to_thread.run_sync(self._flush)
            except OSError as error:
                raise thrown(IO, f"the file could not be kept while it came in: {error.strerror}") from error

    async def clear(self) -> None:
        """Forget what came in, so that it may come again."""
        self._pending, self.size_bytes, self.start = bytearray(), 0, b""
        if self._on_disk:
            self._on_disk = False
            await anyio.to_thread.run_sync(self._path.unlink)

    def move_to(self, target: Path, *, as_text: bool) -> None:
        """Make the bytes a blob; blocking, for a worker thread."""
        if as_text:
            data = self._path.read_bytes() if self._on_disk else b""
            self._pending = bytearray(to_utf8(data + bytes(self._pending)))
            self._on_disk = False
            self._path.unlink(missing_ok=True)
        self._flush(sync=True)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.replace(target)

    def _flush(self, *, sync: bool = False) -> None:
        with self._path.open("ab") as file:
            self._on_disk = True
            file.write(self._pending)
            self._pending = bytearray()
            if sync:
                file.flush()
                os.fsync(file.fileno())


class BlobFolder:
    """Blobs of one instance; get one from `open_blobs`."""

    def __init__(self, folder: Path, instance_id: str) -> None:
        self._folder = folder
        self._incoming = folder / "incoming"
        self._instance_id = instance_id

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[Spool]:
        """Take bytes in; what was not stored by the end is gone."""
        path = self._incoming / secrets.token_hex(16)
        try:
            yield Spool(path)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove, path)

    async def store(self, spool: Spool, file_path: str, *, as_text: bool) -> None:
        """Keep a spool's bytes under a record's path; text becomes UTF-8."""
        target = self.path_of(file_path)
        await anyio.to_thread.run_sync(lambda: spool.move_to(target, as_text=as_text))

    async def size(self, file_path: str) -> int | None:
        """Read a blob's length; None if there is none."""

        def read() -> int | None:
            try:
                return self.path_of(file_path).stat().st_size
            except FileNotFoundError:
                return None

        return await anyio.to_thread.run_sync(read)

    async def chunks(self, file_path: str) -> AsyncIterator[bytes]:
        """Read a blob piece by piece."""
        async with await anyio.open_file(self.path_of(file_path), "rb") as file:
            while chunk := await file.read(_CHUNK):
                yield chunk

    async def remove(self, file_path: str) -> None:
        """Delete a blob for good; an absent one is fine."""
        await anyio.to_thread.run_sync(lambda: self.path_of(file_path).unlink(missing_ok=True))

    def path_of(self, file_path: str) -> Path:
        """Say where a record's bytes lie on this disk."""
        # Records older than the present layout lack the first folder; the real server adds it on reading.
        known = file_path if file_path.startswith("file/") else f"file/{file_path}"
        digest = hashlib.sha256(f"{self._instance_id}\n{known}".encode("utf-8", "backslashreplace")).hexdigest()
        return self._folder / "blobs" / digest[:2] / digest


def _remove(path: Path) -> None:
    # Nothing may be left, and a folder that is gone leaves nothing either.
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


@asynccontextmanager
async def open_blobs(folder: Path, instance_id: str) -> AsyncIterator[BlobFolder]:
    """Open the folder, making it if absent, and sweep what an earlier process left half received."""

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(folder / "incoming", ignore_errors=True)
        (folder / "incoming").mkdir(mode=0o700)
        (folder / "blobs").mkdir(mode=0o700, exist_ok=True)

    await anyio.to_thread.run_sync(prepare)
    yield BlobFolder(folder, instance_id)
