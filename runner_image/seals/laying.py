"""Lays the contents of a seal out as files: what a restore spends its time on, and what two processes share (see `companion`).

Every content is held against its SHA-256. One that lies in a single pack is proven before a byte of it is written; one that spans
several is proven at its end, so a file may be wrong until then, which is why nothing of a restore is in its final place before all is.
Everything here is made of plain tuples, which go from one process to the other as they are.
"""

import hashlib
import os
from collections.abc import Sequence
from itertools import groupby, pairwise

from runner_image.errors import SealError
from runner_image.seals.stored import Slot, expand, read_slot
from workflow_schemas.path_names import path_bytes

Stamp = tuple[int, int, int, int, int]
"""Number of the inode, size, mtime_ns, ctime_ns and mode of a file."""

Pack = tuple[int, int, str, bool, tuple[str, int, int]]
"""Begin and end in the stream, SHA-256, whether it is stored as it is, and its slot; the streams of a chain are laid end to end."""

File = tuple[str, int, int]
"""Path as an index writes it, permission bits, mtime_ns."""

Content = tuple[int, int, int, str, Sequence[File]]
"""Begin and end in the stream, position of the pack in which it begins, SHA-256, and the files that have it."""

Run = tuple[int, int]
"""First content, and the one after the last."""

_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES = 1024 * 1024
_MAX_RUNS = 1000
_HELD = 2  # whoever goes through the runs one by one, in either direction, unpacks hardly a pack twice


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode


def runs(contents: Sequence[Content]) -> list[Run]:
    """Cut the contents where another pack begins; a large seal has several packs in each run, so that there are not too many."""
    starts = [next(group)[0] for _, group in groupby(enumerate(contents), lambda numbered: numbered[1][2])]
    starts = starts[:: -(-len(starts) // _MAX_RUNS) or 1]
    return list(pairwise([*starts, len(contents)]))


class Layout:
    """The files of a tree whose folders are there."""

    def __init__(self, top: int, packs: Sequence[Pack], contents: Sequence[Content]) -> None:
        self._top, self._packs, self._contents = top, packs, contents
        self._held: dict[int, bytes] = {}
        self.stamps: dict[str, Stamp] = {}
        """Stamp of each file that was written, by its path."""

    def lay(self, run: Run) -> None:
        """Write the files of a run.

        Raises:
            SealError: A part cannot be read, or a content is not what the index states.
            OSError: A file cannot be written.
        """
        for begin, end, number, sha256, files in self._contents[slice(*run)]:  # unpacking is three times as fast as naming fields
            pack_begin, pack_end, *_ = self._packs[number]
            if end > pack_end:
                self._span(begin, end, number, sha256, files)
                continue
            data = memoryview(self._unpacked(number))[begin - pack_begin : end - pack_begin]
            _prove(hashlib.sha256(data).hexdigest(), sha256, files)
            for file in files:
                self.write(file, data)

    def write(self, file: File, data: bytes | memoryview) -> None:
        """Write a file whose content is proven."""
        opened = self._created(file)
        try:
            if data:
                _write_all(opened, data)
            self._settle(opened, file)
        finally:
            os.close(opened)

    def _span(self, begin: int, end: int, number: int, sha256: str, files: Sequence[File]) -> None:
        """Write a content that goes on in the next pack."""
        hasher, size = hashlib.sha256(), end - begin
        first, *others = files
        opened = self._created(first)
        try:
            while begin < end:
                pack_begin, pack_end, *_ = self._packs[number]
                piece = memoryview(self._unpacked(number))[begin - pack_begin : end - pack_begin]
                hasher.update(piece)
                _write_all(opened, piece)
                begin, number = pack_end, number + 1
            _prove(hasher.hexdigest(), sha256, files)
            for other in others:
                self._copy(opened, other, size)
            self._settle(opened, first)
        finally:
            os.close(opened)

    def _copy(self, source: int, file: File, size: int) -> None:
        opened = self._created(file)
        try:
            for offset in range(0, size, _COPY_BYTES):
                _write_all(opened, os.pread(source, _COPY_BYTES, offset))
            self._settle(opened, file)
        finally:
            os.close(opened)

    def _unpacked(self, number: int) -> bytes:
        """Return a pack; its own SHA-256 is not computed, since every content in it is held against one."""
        data = self._held.get(number)
        if data is None:
            begin, end, sha256, raw, slot = self._packs[number]
            data = read_slot(Slot(*slot))
            if not raw:
                data = expand(data, end - begin, f"the pack {sha256!r}", exact=True)
            if len(self._held) >= _HELD:
                del self._held[next(iter(self._held))]
            self._held[number] = data
        return data

    def _created(self, file: File) -> int:
        return os.open(path_bytes(file[0]), _CREATE_FLAGS, file[1], dir_fd=self._top)

    def _settle(self, opened: int, file: File) -> None:
        """Give a file that is written its time and mode, and note its stamp."""
        path, mode, mtime_ns = file
        os.utime(opened, ns=(mtime_ns, mtime_ns))
        status = os.fstat(opened)
        if status.st_mode & 0o777 != mode:  # the process's mask took bits away
            os.fchmod(opened, mode)
            status = os.fstat(opened)
        self.stamps[path] = stamp_of(status)


def _prove(sha256: str, stated: str, files: Sequence[File]) -> None:
    if sha256 != stated:
        raise SealError(f"the content of {files[0][0][:200]!r} does not have the SHA-256 that the index states; the seal is damaged")


def _write_all(opened: int, data: bytes | memoryview) -> None:
    done = os.write(opened, data) if data else 0
    while done < len(data):
        done += os.write(opened, data[done:])
