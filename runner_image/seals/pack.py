"""The stream of a seal: contents laid end to end and cut into packs, each compressed on its own in a worker thread.

Small files share a pack and compress together; a file of any size is cut wherever a pack is full. A pack that compression
does not make smaller is stored as it is. Only a few packs are in memory at a time.
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from runner_image.seals.parts import PartWriter
from runner_image.seals.stored import zstd
from workflow_schemas.seal import SealPack

_PACK_BYTES = 1024 * 1024  # 4 MiB pack 1 % better, take a tenth longer to unpack and four times the memory
_LEVEL = 3
_WORTH = 0.97
_AHEAD = 4


class _Packed(NamedTuple):
    data: bytes
    size: int
    sha256: str
    codec: Literal["zstd", "raw"]


@dataclass
class PackStream:
    """Takes contents and writes packs."""

    parts: PartWriter
    workers: ThreadPoolExecutor
    packs: list[SealPack] = field(default_factory=list)
    length: int = 0
    """Bytes taken so far: where the next content begins."""

    _buffer: bytearray = field(default_factory=bytearray)
    _pending: deque[Future[_Packed]] = field(default_factory=deque)
    _pack_bytes: int = 0

    def __post_init__(self) -> None:
        self._pack_bytes = min(_PACK_BYTES, self.parts.max_part_bytes // 4)

    def add(self, data: bytes) -> None:
        """Append bytes to the stream."""
        self.length += len(data)
        view = memoryview(data)
        while view:
            room = self._pack_bytes - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) >= self._pack_bytes:
                self._submit()

    def flush(self) -> None:
        """Let the workers pack what is left, while the caller has other things to do."""
        if self._buffer:
            self._submit()

    def finish(self) -> None:
        """Write what is still in memory."""
        self.flush()
        while self._pending:
            self._write(self._pending.popleft().result())

    def _submit(self) -> None:
        self._pending.append(self.workers.submit(_pack, self._buffer))
        self._buffer = bytearray()
        while len(self._pending) > _AHEAD or (self._pending and self._pending[0].done()):
            self._write(self._pending.popleft().result())

    def _write(self, packed: _Packed) -> None:
        number = self.parts.add(f"seal/packs/{packed.sha256}", packed.data)
        described = SealPack(sha256=packed.sha256, codec=packed.codec, size_bytes=packed.size, stored_bytes=len(packed.data), part=number)
        self.packs.append(described)


def _pack(content: bytearray) -> _Packed:
    data = zstd.compress(content, _LEVEL)
    codec: Literal["zstd", "raw"] = "zstd"
    if len(data) > len(content) * _WORTH:
        data, codec = bytes(content), "raw"
    return _Packed(data, len(content), hashlib.sha256(data).hexdigest(), codec)


@contextmanager
def packing(parts: PartWriter) -> Iterator[PackStream]:
    """Run the workers of a stream; what was not finished is dropped when the block fails."""
    with ThreadPoolExecutor(worker_count(), "seal-pack") as workers:
        try:
            yield PackStream(parts, workers)
        except BaseException:
            workers.shutdown(wait=True, cancel_futures=True)
            raise


def compress(data: bytes) -> bytes:
    """Pack an index."""
    return zstd.compress(data, 1)


def worker_count() -> int:
    """Return how many threads are worth it here; each holds a pack or two in memory."""
    return max(1, min(4, len(os.sched_getaffinity(0))))
