"""Puts the tree of a seal into an empty folder: built beside the final place, proven, and only then moved there.

The place is a hidden folder inside the empty one, because the workspace may be a mount of its own, over which nothing can be renamed.
Folders come first, then files, links last; so nothing is ever written through a link of the seal. Modes and times of folders come at
the very end, because a folder may forbid writing.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from runner_image.errors import SealError
from runner_image.seals.known import KnownSeal, Stamp, stamp_of
from runner_image.seals.limits import DEFAULT_LIMITS, SealLimits
from runner_image.seals.pack import ahead, unpack, worker_count
from runner_image.seals.parts import read_slot
from runner_image.seals.reader import Content, SealChain, needed_packs
from runner_image.seals.walk import FOLDER_FLAGS, open_root
from workflow_schemas.seal import SealEntry, SealHead, SealPack, path_bytes

_STAGING = ".seal-being-restored-"
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A tree that was restored; every file was held against its SHA-256."""

    known: KnownSeal
    """The seal with stamps of this sandbox: what the next seal continues."""

    tree_sha256: str
    """Hash of the tree, proven."""

    files: int
    """Number of files."""

    size_bytes: int
    """Size of the files together."""

    extras: tuple[str, ...]
    """Names of the documents; read them with `SealChain.extra`."""


def restore(chain: SealChain, root: Path, *, limits: SealLimits = DEFAULT_LIMITS) -> Restored:
    """Restore a seal. Blocks; call it in a worker thread, before anything else may touch the folder.

    Args:
        chain: What `read_seals` returned.
        root: An existing, empty folder. What an earlier attempt left there is taken away.
        limits: Bounds on what is written.

    Raises:
        SealError: The folder is not empty, the disk is full, or the seal is damaged or hostile. The folder is empty then.
    """
    index = chain.index
    size = sum(entry.size for entry in index.entries)
    if len(index.entries) > limits.max_entries or size > limits.max_tree_bytes:
        raise SealError(f"the seal of turn {index.turn_number} is above the limit: {len(index.entries)} entries, {size} bytes")
    top = open_root(root)
    try:
        with _staging(top, index.entries) as (name, staging):
            tree = _Tree(staging, index.entries)
            tree.make_folders()
            tree.write_files(chain)
            tree.make_links()
            _move_up(top, name, staging)
            tree.finish_folders(top)
        device = os.fstat(top).st_dev
    except OSError as error:
        raise SealError(f"the seal of turn {index.turn_number} could not be restored: {error.strerror or error}") from error
    finally:
        os.close(top)
    known = KnownSeal(index=index, index_sha256=chain.known.index_sha256, stamps=MappingProxyType(tree.stamps), device=device)
    names = tuple(extra.name for extra in index.extras)
    return Restored(known=known, tree_sha256=index.tree_sha256, files=len(tree.stamps), size_bytes=size, extras=names)


@contextmanager
def _staging(top: int, entries: Sequence[SealEntry]) -> Iterator[tuple[str, int]]:
    """Make the hidden folder; when the block fails, nothing of the tree is left, wherever it already was."""
    for name in os.listdir(top):
        if not name.startswith(_STAGING):
            raise SealError(f"the folder is not empty ({name[:80]!r} is in it); a seal is restored into an empty one only")
        _remove(name, top)
    names = {entry.path.partition("/")[0] for entry in entries}
    while (name := _STAGING + secrets.token_hex(8)) in names:
        pass
    os.mkdir(name, 0o700, dir_fd=top)
    try:
        staging = os.open(name, FOLDER_FLAGS, dir_fd=top)
        try:
            yield name, staging
        finally:
            os.close(staging)
    except BaseException:
        for left in os.listdir(top):
            _remove(left, top)
        raise


def _remove(name: str, top: int) -> None:
    """Take a folder or file away; what resists is left, the restore fails anyway and the next attempt refuses the folder."""
    with suppress(OSError):
        os.unlink(name, dir_fd=top)
        return
    shutil.rmtree(name, ignore_errors=True, dir_fd=top)


def _move_up(top: int, name: str, staging: int) -> None:
    for child in os.listdir(staging):
        os.rename(child, child, src_dir_fd=staging, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


@dataclass(frozen=True, kw_only=True)
class _Load:
    """A pack that is needed."""

    begin: int
    pack: SealPack
    whole: tuple[Content, ...]
    """Contents that lie in it from beginning to end."""

    opening: Content | None
    """The content that begins in it and goes on in the next one."""


def _loads(seal: SealHead, contents: Sequence[Content]) -> list[_Load]:
    loads, position = [], 0
    for begin, pack in needed_packs(seal, contents):
        end, first = begin + pack.size_bytes, position
        while first < len(contents) and contents[first].start < begin:  # began in an earlier pack
            first += 1
        position = first
        while position < len(contents) and contents[position].end <= end:
            position += 1
        opening = contents[position] if position < len(contents) and contents[position].start < end else None
        loads.append(_Load(begin=begin, pack=pack, whole=tuple(contents[first:position]), opening=opening))
    return loads


def _proven(chain: SealChain, load: _Load) -> bytes:
    data = unpack(load.pack, read_slot(chain.packs[load.pack.sha256]))
    view = memoryview(data)
    for content in load.whole:
        sha256 = hashlib.sha256(view[content.start - load.begin : content.end - load.begin]).hexdigest()
        _prove(sha256, content.entries[0])
    return data


@dataclass
class _Tree:
    """The tree while it is built."""

    top: int
    entries: Sequence[SealEntry]
    stamps: dict[str, Stamp] = field(default_factory=dict)

    def make_folders(self) -> None:
        for entry in self.entries:
            if entry.kind == "directory":
                os.mkdir(path_bytes(entry.path), 0o700, dir_fd=self.top)

    def make_links(self) -> None:
        for entry in self.entries:
            if entry.kind == "symlink":
                path = path_bytes(entry.path)
                os.symlink(path_bytes(entry.content), path, dir_fd=self.top)
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=self.top, follow_symlinks=False)

    def finish_folders(self, top: int) -> None:
        """Set modes and times of folders, the deepest first."""
        for entry in reversed(self.entries):
            if entry.kind == "directory":
                path = path_bytes(entry.path)
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=top)
                if entry.mode != 0o700:
                    os.chmod(path, entry.mode, dir_fd=top)

    def write_files(self, chain: SealChain) -> None:
        """Write all files. Each worker unpacks a pack, proves what lies in it whole and writes that; the rest is put together here."""
        for entry in self.entries:
            if entry.kind == "file" and not entry.size:
                self.write(Content(start=0, end=0, entries=(entry,)), b"")
        with ThreadPoolExecutor(worker_count(), "seal-unpack") as workers:
            for seal, contents in zip(chain.seals, chain.contents, strict=True):
                loads = _loads(seal, contents)
                with closing(ahead([partial(self._write_whole, chain, load) for load in loads], workers)) as pieces:
                    self._write_spanning(loads, pieces)

    def _write_whole(self, chain: SealChain, load: "_Load") -> bytes:
        data = _proven(chain, load)
        view = memoryview(data)
        for content in load.whole:
            self.write(content, view[content.start - load.begin : content.end - load.begin])
        return data

    def _write_spanning(self, loads: Sequence["_Load"], pieces: Iterable[bytes]) -> None:
        spanning: _Spanning | None = None
        try:
            for load, piece in zip(loads, pieces, strict=True):
                view = memoryview(piece)
                if spanning and spanning.feed(view):
                    spanning = None
                if load.opening:
                    spanning = _Spanning(self, load.opening)
                    spanning.feed(view[load.opening.start - load.begin :])
        finally:
            if spanning:
                spanning.close()

    def write(self, content: Content, data: bytes | memoryview) -> None:
        """Write every file of a content that is proven; runs for nearly every file, hence terse."""
        for entry in content.entries:
            file = self.create(entry)
            try:
                if data:
                    done = os.write(file, data)
                    if done < len(data):
                        _write_all(file, memoryview(data)[done:])
                self.settle(file, entry)
            finally:
                os.close(file)

    def create(self, entry: SealEntry) -> int:
        """Create a file and return its descriptor."""
        return os.open(path_bytes(entry[0]), _CREATE_FLAGS, entry[2], dir_fd=self.top)

    def settle(self, file: int, entry: SealEntry) -> None:
        """Give a file that is written its time and mode, and note its stamp."""
        path, _, mode, mtime_ns, _, _, _, _ = entry
        os.utime(file, ns=(mtime_ns, mtime_ns))
        status = os.fstat(file)
        if status.st_mode & 0o777 != mode:  # the process's mask took bits away
            os.fchmod(file, mode)
            status = os.fstat(file)
        self.stamps[path] = stamp_of(status)


class _Spanning:
    """Writes a content that is larger than what is left of its pack."""

    def __init__(self, tree: _Tree, content: Content) -> None:
        self._tree, self._content = tree, content
        self._left, self._hasher = content.entries[0].size, hashlib.sha256()
        self._file = tree.create(content.entries[0])

    def feed(self, view: memoryview) -> bool:
        """Take the next bytes of the stream; True when the content is complete."""
        mine = view[: self._left]
        self._hasher.update(mine)
        _write_all(self._file, mine)
        self._left -= len(mine)
        if self._left:
            return False
        first, *others = self._content.entries
        _prove(self._hasher.hexdigest(), first)
        for entry in others:
            self._copy(entry)
        self._tree.settle(self._file, first)
        self.close()
        return True

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _copy(self, entry: SealEntry) -> None:
        file = self._tree.create(entry)
        try:
            for offset in range(0, entry.size, _COPY_BYTES):
                _write_all(file, os.pread(self._file, _COPY_BYTES, offset))
            self._tree.settle(file, entry)
        finally:
            os.close(file)


def _prove(sha256: str, entry: SealEntry) -> None:
    if sha256 != entry.content:
        raise SealError(f"the content of {entry.path[:200]!r} does not have the SHA-256 that the index states; the seal is damaged")


def _write_all(file: int, data: bytes | memoryview) -> None:
    done = os.write(file, data) if data else 0
    while done < len(data):
        done += os.write(file, data[done:])
