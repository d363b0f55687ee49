"""Writes a seal: walks the tree, reads what may have changed, stores what the chain does not have yet.

A file is trusted to be unchanged only by a stamp that this sandbox itself made (see `known`), and by default only where the file system
also notes writes through memory maps: tmpfs does not (measured on Linux 6.18), so there every file is read and hashed again.
An entry of the index always describes exactly the bytes that were stored, whatever happens to the file meanwhile.
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from runner_image.errors import SealError
from runner_image.seals.known import KnownSeal, Stamp, records_mapped_writes, stamp_of
from runner_image.seals.limits import DEFAULT_LIMITS, SealLimits
from runner_image.seals.pack import PackStream, compress, packing
from runner_image.seals.parts import INDEX_MEMBER, PartWriter
from runner_image.seals.walk import Exclude, Found, open_file, open_root, reason_of, walk
from workflow_schemas.seal import (
    EXTRA_PATTERN,
    STEM_PATTERN,
    LeftOut,
    SealEntry,
    SealExtra,
    SealIndex,
    SealReference,
    path_bytes,
    path_text,
    tree_sha256,
)

_WHOLE_BYTES = 1024 * 1024
_ATTEMPTS = 3
_SETTLED_NS = 50_000_000  # file times advance in ticks of up to 10 ms: a younger stamp may hide a later change
_MAX_LEFT_OUT = 1000
_EXTRA_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Trust = Literal["never", "recorded", "always"]
"""When a stamp counts: never, where the file system records every kind of write, or always (a write through a map may be missed)."""


@dataclass(frozen=True, kw_only=True)
class WrittenSeal:
    """A seal that was written."""

    known: KnownSeal
    """What the next seal needs."""

    parts: tuple[Path, ...]
    """The archives, in order."""

    new_bytes: int
    """Bytes of content that no earlier seal of the chain had, before packing."""

    total_bytes: int
    """Size of the parts together."""

    left_out: tuple[LeftOut, ...]
    """What is not in it although nobody chose so; also in the index."""

    @property
    def index(self) -> SealIndex:
        """Its table of contents."""
        return self.known.index


class _Place(NamedTuple):
    seal: int
    start: int


class _Unsteady(Exception):
    """A file kept changing, or is no file any more; the message is the reason."""


def write_seal(
    root: Path,
    target: Path,
    *,
    stem: str,
    turn_number: int,
    parent: KnownSeal | None = None,
    extras: Mapping[str, bytes | Path] | None = None,
    exclude: Exclude | None = None,
    trust: Trust = "recorded",
    limits: SealLimits = DEFAULT_LIMITS,
) -> WrittenSeal:
    """Seal a folder. Blocks; call it in a worker thread.

    Args:
        root: The folder. It may be hostile, and may even change meanwhile.
        target: An existing folder for the parts, which are named after the stem. Nothing is overwritten.
        stem: Beginning of the names, such as `turn-003-seal`.
        turn_number: The turn; higher than the parent's.
        parent: The seal to continue, written or restored here: only then are its contents proven. When its chain is as long as
            allowed, a full seal is written instead.
        extras: Documents by name, as bytes or as a file to copy.
        exclude: Chooses entries to leave out, see `excluding`.
        trust: When a file with an unchanged stamp need not be read again.
        limits: What is above them is left out and named.

    Raises:
        SealError: The seal could not be written; no part of it is left.
    """
    if parent is not None and turn_number <= parent.index.turn_number:
        raise SealError(f"turn {turn_number} cannot continue the seal of turn {parent.index.turn_number}; number the turns upwards")
    _check_names(stem, extras or {})
    top = open_root(root)
    try:
        with PartWriter(target, stem, limits.max_part_bytes) as parts:
            with packing(parts) as stream:
                tree = _Tree(stream, limits, parent, _trusted_device(top, trust, parent))
                for found in walk(top, exclude, tree.miss):
                    tree.take(found)
                stream.finish()
            documents = [document for name, source in (extras or {}).items() if (document := _extra(parts, name, source, tree.miss))]
            known = _index(parts, tree, stem, turn_number, documents, os.fstat(top).st_dev)
    except OSError as error:
        raise SealError(f"the seal {stem!r} could not be written: {error.strerror}; make room and seal again") from error
    finally:
        os.close(top)
    left_out = known.index.left_out
    return WrittenSeal(known=known, parts=parts.paths, new_bytes=stream.length, total_bytes=parts.total_bytes, left_out=left_out)


def _check_names(stem: str, extras: Mapping[str, bytes | Path]) -> None:
    if not re.fullmatch(STEM_PATTERN, stem):
        raise SealError(f"the stem {stem!r} cannot begin a file name; use letters, digits, '-' and '_'")
    for name in extras:
        if not re.fullmatch(EXTRA_PATTERN, name):
            raise SealError(f"the document name {name!r} is not plain; use letters, digits, '.', '-' and '_'")


def _trusted_device(top: int, trust: Trust, parent: KnownSeal | None) -> int | None:
    """Return the device on which stamps count, or None."""
    if parent is None or trust == "never" or not parent.stamps:
        return None
    device = os.fstat(top).st_dev
    return device if device == parent.device and (trust == "always" or records_mapped_writes(top)) else None


def _index(parts: PartWriter, tree: "_Tree", stem: str, turn_number: int, documents: list[SealExtra], device: int) -> KnownSeal:
    entries = tuple(sorted(tree.entries))
    # model_construct: checking thousands of our own entries again would cost a third of a small seal; the tests do it
    index = SealIndex.model_construct(
        schema_version="1",
        turn_number=turn_number,
        stem=stem,
        chain=tree.chain,
        tree_sha256=tree_sha256(entries),
        entries=entries,
        packs=tuple(tree.stream.packs),
        extras=tuple(documents),
        left_out=tree.left_out(),
    )
    data = index.encoded()
    parts.add(INDEX_MEMBER, compress(data))
    sha256 = hashlib.sha256(data).hexdigest()
    return KnownSeal(index=index, index_sha256=sha256, stamps=MappingProxyType(tree.stamps), device=device)


def _extra(parts: PartWriter, name: str, source: bytes | Path, missed: Callable[[str, str], None]) -> SealExtra | None:
    if isinstance(source, bytes):
        if parts.room_for(len(source)):
            parts.add(f"seal/extra/{name}", source)
            return SealExtra(name=name, size_bytes=len(source), sha256=hashlib.sha256(source).hexdigest())
        missed(f"extra:{name}", "it is larger than a part of a seal")
        return None
    try:
        file = os.open(source, _EXTRA_FLAGS)
    except OSError as error:
        missed(f"extra:{name}", reason_of(error))
        return None
    try:
        return _copied(parts, name, file, missed)
    finally:
        os.close(file)


def _copied(parts: PartWriter, name: str, file: int, missed: Callable[[str, str], None]) -> SealExtra | None:
    status, hasher = os.fstat(file), hashlib.sha256()
    size = left = status.st_size
    if not stat.S_ISREG(status.st_mode) or not parts.room_for(size):
        missed(f"extra:{name}", "it is no file, or larger than a part of a seal")
        return None
    parts.begin(f"seal/extra/{name}", size)
    while left and (piece := os.read(file, min(left, _WHOLE_BYTES))):
        parts.write(piece)
        hasher.update(piece)
        left -= len(piece)
    for missing in range(left, 0, -_WHOLE_BYTES):  # the archive must stay in step although the file was cut off
        parts.write(bytes(min(missing, _WHOLE_BYTES)))
    parts.end(size)
    if left:
        missed(f"extra:{name}", "it was cut off while the seal was written")
        return None
    return SealExtra(name=name, size_bytes=size, sha256=hasher.hexdigest())


@dataclass
class _Tree:
    """Turns what the walk finds into entries."""

    stream: PackStream
    limits: SealLimits
    parent: KnownSeal | None
    device: int | None
    entries: list[SealEntry] = field(default_factory=list)
    stamps: dict[str, Stamp] = field(default_factory=dict)
    chain: tuple[SealReference, ...] = ()
    _bytes: int = 0
    _missed: list[LeftOut] = field(default_factory=list)
    _missed_more: int = 0
    _before: dict[str, tuple[SealEntry, Stamp]] = field(default_factory=dict)
    _places: dict[str, _Place] = field(default_factory=dict)
    _settled: int = 0

    def __post_init__(self) -> None:
        self._settled = time.time_ns() - _SETTLED_NS
        if self.parent is None or self.parent.index.chain_length >= self.limits.max_chain:
            return
        index = self.parent.index
        self.chain = (*index.chain, SealReference(turn_number=index.turn_number, index_sha256=self.parent.index_sha256))
        self._places = {entry.content: _Place(entry.seal, entry.start) for entry in index.entries if entry.kind == "file" and entry.size}
        if self.device is not None:
            stamps = self.parent.stamps
            self._before = {
                os.fsdecode(path_bytes(entry.path)): (entry, stamps[entry.path]) for entry in index.entries if entry.path in stamps
            }

    def miss(self, path: str, reason: str) -> None:
        """Note what is left out; names of many are shortened to a number, because a hostile tree may have millions."""
        if len(self._missed) < _MAX_LEFT_OUT:
            self._missed.append(LeftOut(path_text(os.fsencode(path)), reason))
        else:
            self._missed_more += 1

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return all that was missed."""
        more = [LeftOut("", f"{self._missed_more} more entries were left out")] if self._missed_more else []
        return (*self._missed, *more)

    def take(self, found: Found) -> None:
        """Add one entry, or note why not."""
        if len(self.entries) >= self.limits.max_entries:
            self.miss(found.path, f"the tree has more than {self.limits.max_entries} entries")
            return
        if found.path in self._before and (unchanged := self._unchanged(found)):
            self._bytes += unchanged.size
            self.entries.append(unchanged)
            return
        status, path = found.status, path_text(os.fsencode(found.path))
        kind = stat.S_IFMT(status.st_mode)
        try:
            if kind == stat.S_IFREG:
                entry = self._file(path, found)
            elif kind == stat.S_IFDIR:
                entry = SealEntry(path, "directory", status.st_mode & 0o777, status.st_mtime_ns, 0, "", 0, 0)
            else:
                target = path_text(os.fsencode(os.readlink(found.name, dir_fd=found.folder)))
                entry = SealEntry(path, "symlink", 0o777, status.st_mtime_ns, 0, target, 0, 0)
        except _Unsteady as error:
            self.miss(found.path, str(error))
        except OSError as error:
            self.miss(found.path, reason_of(error))
        else:
            self._bytes += entry.size
            self.entries.append(entry)

    def _unchanged(self, found: Found) -> SealEntry | None:
        """Return the entry of the seal before when the file is still the same; runs for every file of every turn, hence terse."""
        entry, stamp = self._before[found.path]
        status = found.status
        if status.st_dev != self.device or stamp_of(status) != stamp or status.st_mode != stat.S_IFREG | entry.mode:
            return None
        self.stamps[entry.path] = stamp
        return entry

    def _file(self, path: str, found: Found) -> SealEntry:
        if found.status.st_size > self.limits.max_file_bytes or self._bytes + found.status.st_size > self.limits.max_tree_bytes:
            raise _Unsteady(f"it has {found.status.st_size} bytes, which is above the limit of a file or of the tree")
        file = open_file(found)
        try:
            for _ in range(_ATTEMPTS):
                before = os.fstat(file)
                if not stat.S_ISREG(before.st_mode):
                    raise _Unsteady("it is no file any more")
                sha256, place = self._stored(file, before.st_size)
                if place is not None and stamp_of(os.fstat(file)) == stamp_of(before):
                    break
            else:
                raise _Unsteady("it kept changing while the seal was written")
        finally:
            os.close(file)
        if before.st_ctime_ns < self._settled:
            self.stamps[path] = stamp_of(before)
        return SealEntry(path, "file", before.st_mode & 0o777, before.st_mtime_ns, before.st_size, sha256, *place)

    def _stored(self, file: int, size: int) -> tuple[str, _Place | None]:
        """Store a content that is new; the place is None when the file did not have the size it should have."""
        if size <= _WHOLE_BYTES:
            data = _read_whole(file, size)
            sha256 = hashlib.sha256(data).hexdigest()
            if len(data) != size:
                return sha256, None
            return sha256, self._known(sha256, size) or self._added(sha256, data)
        sha256, length = _hash(file, size)
        if length != size:
            return sha256, None
        place = self._known(sha256, size)
        return (sha256, place) if place else self._streamed(file, size)

    def _known(self, sha256: str, size: int) -> _Place | None:
        return self._places.get(sha256) if size else _Place(0, 0)

    def _added(self, sha256: str, data: bytes) -> _Place:
        place = self._places[sha256] = _Place(len(self.chain), self.stream.length)
        self.stream.add(data)
        return place

    def _streamed(self, file: int, size: int) -> tuple[str, _Place | None]:
        """Store a large file; hashed anew, because only the bytes that go into the stream count."""
        place, hasher, left = _Place(len(self.chain), self.stream.length), hashlib.sha256(), size
        offset = 0
        while left and (piece := os.pread(file, min(left, _WHOLE_BYTES), offset)):
            hasher.update(piece)
            self.stream.add(piece)
            offset, left = offset + len(piece), left - len(piece)
        sha256 = hasher.hexdigest()
        if left:
            return sha256, None
        self._places[sha256] = place
        return sha256, place


def _read_whole(file: int, size: int) -> bytes:
    data = os.pread(file, size + 1, 0)
    while 0 < len(data) < size and (more := os.pread(file, size + 1 - len(data), len(data))):
        data += more
    return data


def _hash(file: int, size: int) -> tuple[str, int]:
    hasher, offset = hashlib.sha256(), 0
    while offset <= size and (piece := os.pread(file, _WHOLE_BYTES, offset)):
        hasher.update(piece)
        offset += len(piece)
    return hasher.hexdigest(), offset
