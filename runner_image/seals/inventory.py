"""The tree of a seal while it is written: what is unchanged since the seal before, and what must be read.

A file that is read is read while nobody can change it unnoticed: its stamp is taken before and after. Where the file system does not note
writes through memory maps, a stamp is kept only if nobody has the file open for writing (a lease of the kernel proves it), because whoever
has could write on through a map and leave the stamp as it is. See `witness` for what happens after that.
"""

import fcntl
import hashlib
import os
import signal
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple

from runner_image.errors import SealError
from runner_image.seals.known import KnownSeal
from runner_image.seals.laying import Stamp, stamp_of
from runner_image.seals.limits import SealLimits
from runner_image.seals.pack import PackStream
from runner_image.seals.walk import Found, Listing, open_file, reason_of
from runner_image.seals.witness import Testimony
from workflow_schemas.seal import LeftOut, SealEntry, SealReference, path_text

_WHOLE_BYTES = 1024 * 1024
_ATTEMPTS = 3
_SETTLED_NS = 50_000_000  # file times advance in ticks of up to 10 ms: a younger stamp may hide a later change
_MAX_LEFT_OUT = 1000
_NONE: Mapping[str, Stamp] = MappingProxyType({})


class _Place(NamedTuple):
    seal: int
    start: int


class _Unsteady(Exception):
    """A file kept changing, or is no file any more; the message is the reason."""


@dataclass
class Inventory:
    """Turns what a walk lists into entries."""

    stream: PackStream
    limits: SealLimits
    parent: KnownSeal | None
    """The seal to continue, unless its chain is as long as allowed."""

    device: int | None
    """Device on which the parent's stamps count; None when they do not."""

    leased: bool
    """Whether a stamp needs the proof that nobody has the file open for writing."""

    testimony: Testimony | None = None
    """What was seen of the files since the parent's stamps; None where stamps say enough by themselves."""

    entries: list[SealEntry] = field(default_factory=list)
    """What was read, without the files that are as they were; see `sorted_entries`."""

    chain: tuple[SealReference, ...] = ()
    _bytes: int = 0
    _missed: list[LeftOut] = field(default_factory=list)
    _missed_more: int = 0
    _before: Mapping[str, Stamp] = field(default_factory=dict)
    _kept: dict[str, Stamp] = field(default_factory=dict)
    _stamps: dict[str, Stamp] = field(default_factory=dict)
    _old_places: dict[str, SealEntry] | None = None
    _new_places: dict[str, _Place] = field(default_factory=dict)
    _settled: int = 0

    def __post_init__(self) -> None:
        self._settled = time.time_ns() - _SETTLED_NS
        if self.parent is None or self.parent.index.chain_length >= self.limits.max_chain:
            self.parent = None
            return
        index = self.parent.index
        self.chain = (*index.chain, SealReference(turn_number=index.turn_number, index_sha256=self.parent.index_sha256))
        if self.device is not None:
            self._before = self.parent.stamps

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

    def take(self, listing: Listing) -> None:
        """Add what a folder holds, or note why not; runs for every file of every turn, hence terse."""
        above, folder, children, _ = listing
        text_above = _text(above)
        kept, look, device = self._kept, os.stat, self.device
        stamp_as = attrgetter("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode")  # `stamp_of` at half the time
        stamp_at = self._trusted(text_above).get
        opened = self.testimony.opened if self.testimony is not None else None
        room, size = self.limits.max_entries - len(self.entries), 0
        others: list[tuple[str, str, os.stat_result]] = []
        for name in children:
            try:
                status = look(name, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                self.miss(above + name, reason_of(error))
                continue
            path = text_above + (name if name.isascii() and "\\" not in name else path_text(os.fsencode(name)))
            stamp = stamp_at(path)
            if stamp is not None and stamp == stamp_as(status) and status.st_dev == device and len(kept) < room:
                quiet = opened is None or (path not in opened and status.st_nlink == 1)
                if quiet or self._still(path, Found(above + name, name, folder, status)):
                    kept[path] = stamp
                    size += stamp[1]
                    continue
            others.append((name, path, status))
        self._bytes += size
        self._take_others(listing, others)

    def _trusted(self, text_above: str) -> Mapping[str, Stamp]:
        """Return the stamps that count in a folder."""
        if self.testimony is not None and text_above.rstrip("/") not in self.testimony.folders:
            return _NONE
        return self._before

    def _take_others(self, listing: Listing, others: list[tuple[str, str, os.stat_result]]) -> None:
        above, folder, _, admits = listing
        others.sort()  # contents of one folder are stored in the order of their names
        for name, path, status in others:
            if not admits(name, status):
                continue
            if len(self.entries) + len(self._kept) < self.limits.max_entries:
                self._take(path, Found(above + name, name, folder, status))
            else:
                self.miss(above + name, f"the tree has more than {self.limits.max_entries} entries")

    def sorted_entries(self) -> tuple[SealEntry, ...]:
        """Return the whole tree, sorted by path, when all is taken."""
        entries: list[SealEntry] = []
        path_of = itemgetter(0)
        if self._kept and self.parent is not None:
            old = self.parent.index.entries
            entries += compress(old, map(self._kept.__contains__, map(path_of, old)))
        if len(entries) != len(self._kept):
            raise SealError("the stamps of the seal before are of files that it does not have; seal without it")
        return tuple(sorted(entries + self.entries, key=path_of))

    def stamps(self) -> dict[str, Stamp]:
        """Return the stamps for the next seal."""
        return self._kept | self._stamps

    def _still(self, path: str, found: Found) -> bool:
        """Tell whether a file that was opened, but whose stamp is unchanged, cannot have been written."""
        if self.testimony is None or path in self.testimony.written or found.status.st_nlink != 1:
            return False
        with suppress(OSError):
            file = open_file(found)
            try:
                return _lease(file) and stamp_of(os.fstat(file)) == stamp_of(found.status)
            finally:
                os.close(file)
        return False

    def _take(self, path: str, found: Found) -> None:
        status = found.status
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

    def _file(self, path: str, found: Found) -> SealEntry:
        if found.status.st_size > self.limits.max_file_bytes or self._bytes + found.status.st_size > self.limits.max_tree_bytes:
            raise _Unsteady(f"it has {found.status.st_size} bytes, which is above the limit of a file or of the tree")
        file = open_file(found)
        try:
            alone = not self.leased or _lease(file)
            for _ in range(_ATTEMPTS):
                before = os.fstat(file)
                if not stat.S_ISREG(before.st_mode):
                    raise _Unsteady("it is no file any more")
                sha256, place = self._stored(file, before.st_size)
                if place is not None and stamp_of(os.fstat(file)) == stamp_of(before):
                    break
            else:
                raise _Unsteady("it kept changing while the seal was written")
            if alone and before.st_ctime_ns < self._settled and (not self.leased or _still_leased(file)):
                self._stamps[path] = stamp_of(before)
        finally:
            os.close(file)
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
        if not size:
            return _Place(0, 0)
        if self._old_places is None:  # only now: in most turns of a large tree hardly a file is read
            entries = self.parent.index.entries if self.parent else ()
            self._old_places = dict(zip(map(itemgetter(5), entries), entries, strict=True))
        old = self._old_places.get(sha256)
        return _Place(old.seal, old.start) if old and old.kind == "file" else self._new_places.get(sha256)

    def _added(self, sha256: str, data: bytes) -> _Place:
        place = self._new_places[sha256] = _Place(len(self.chain), self.stream.length)
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
        self._new_places[sha256] = place
        return sha256, place


def _text(path: str) -> str:
    """Return a path as an index writes it; nearly every one is written as it is."""
    return path if path.isascii() and "\\" not in path else path_text(os.fsencode(path))


def _lease(file: int) -> bool:
    """Take a lease that lasts until the descriptor is closed; only possible while nobody has the file open for writing."""
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # when somebody wants to write meanwhile; the usual SIGIO would end this process
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return False
    return True


def _still_leased(file: int) -> bool:
    """Tell whether the lease held all the time: the kernel ends it by force when a writer has waited too long."""
    return fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_RDLCK


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
