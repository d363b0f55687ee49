"""Sees which files of a workspace are opened for writing during a turn, so that a seal need not read all the others again.

tmpfs does not note the time when a file is written through a memory map: a page that was read first is writable without a fault. But
nobody has such a map without having opened the file for writing, and that the kernel tells to a watch on the folder. Together:

- When a stamp was made, nobody had the file open for writing (see `inventory`), and the witness begins before anybody can again.
- A file that was opened for writing and closed is in `written`, also when its maps outlived the descriptor: the map holds the file open.
- A file that was opened and of which no closing was seen is in `opened`: the seal asks the kernel whether it is open for writing still.
  So a descriptor that was hidden, in a message in a socket for instance, hides nothing.
- Opening it by another name, in a folder that is not watched, takes a link or a rename, and both change the time of the inode.

One way around a watch is known: a user who may mount can put an overlay over the workspace, whose writes below are told to nobody. The
agent's shell has no user namespace and cannot mount (see `wall`). When events are lost or a folder cannot be watched, the files count as
unknown and are read again.
"""

import contextlib
import ctypes
import mmap
import os
import secrets
import select
import struct
import threading
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

from runner_image.errors import SealError
from runner_image.seals.known import KnownSeal, records_mapped_writes
from runner_image.seals.walk import FOLDER_FLAGS, open_root
from workflow_schemas.seal import MAX_DEPTH, path_text

_EVENT = struct.Struct("iIII")
_READ_BYTES = 256 * 1024
_IN_CLOSE_WRITE = 0x8
_IN_OPEN = 0x20
_IN_UNMOUNT = 0x2000
_IN_Q_OVERFLOW = 0x4000
_IN_ONLYDIR = 0x01000000
_MASK = _IN_OPEN | _IN_CLOSE_WRITE | _IN_ONLYDIR
_PROBE = ".seal-witness-"


@dataclass(frozen=True)
class Testimony:
    """What a witness saw from its beginning to its end; paths as an index writes them."""

    folders: Set[str]
    """Folders that were watched all the time; the workspace itself is the empty path."""

    written: Set[str]
    """Files that were opened for writing and closed."""

    opened: Set[str]
    """Files that were opened, in whatever way; the written ones too."""


@dataclass
class Witness:
    """Watches until it is asked; see `witnessing`."""

    _events: int
    _stop: int
    _known: Set[str]
    _folders: dict[int, bytes] = field(default_factory=dict)
    _written: set[str] = field(default_factory=set)
    _opened: set[str] = field(default_factory=set)
    _lost: bool = False
    _reader: threading.Thread | None = None

    def testify(self) -> Testimony | None:
        """End watching and return what was seen, or None when something was missed. Blocks for a moment.

        Ask when the agent's processes have ended. A file that somebody still has open is among the opened ones.
        """
        if self._reader is None:
            return None
        self._end()
        while not self._lost and select.select([self._events], [], [], 0)[0]:
            self._read()
        if self._lost:
            return None
        folders = frozenset(path_text(folder.rstrip(b"/")) for folder in self._folders.values())
        return Testimony(folders, frozenset(self._written), frozenset(self._opened | self._written))

    def _begin(self, top: int) -> None:
        """Watch every folder, and begin only if the kernel tells what it should."""
        libc = ctypes.CDLL(None, use_errno=True)
        for path, folder in _folders(top):
            watch = libc.inotify_add_watch(self._events, b"/proc/self/fd/%d" % folder, ctypes.c_uint32(_MASK))
            if watch >= 0:
                self._folders[watch] = path
        if self._tells(top):
            self._reader = threading.Thread(target=self._run, name="seal-witness", daemon=True)
            self._reader.start()

    def _tells(self, top: int) -> bool:
        """Write to a file through a map, as an agent might, and see whether it is told."""
        name = _PROBE + secrets.token_hex(8)
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=top)
        try:
            os.write(file, b"a")
            page = mmap.mmap(file, 1)
            os.close(file)
            file = -1
            page[0:1] = page[0:1].upper()
            page.close()
        finally:
            if file >= 0:
                os.close(file)
            os.unlink(name, dir_fd=top)
        known, self._known = self._known, frozenset((name,))
        while select.select([self._events], [], [], 0)[0]:
            self._read()
        told = name in self._written and name in self._opened and not self._lost
        self._known = known
        self._written.clear()
        self._opened.clear()
        return told

    def _run(self) -> None:
        while not self._lost:
            ready, _, _ = select.select([self._events, self._stop], [], [])
            if self._stop in ready:
                return
            self._read()

    def _read(self) -> None:
        data, offset = os.read(self._events, _READ_BYTES), 0
        while offset < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            if mask & (_IN_Q_OVERFLOW | _IN_UNMOUNT):
                self._lost = True
            elif length and watch in self._folders:
                path = path_text(self._folders[watch] + data[offset : offset + length].rstrip(b"\0"))
                if path in self._known:  # nobody can fill the memory with names of new files
                    (self._written if mask & _IN_CLOSE_WRITE else self._opened).add(path)
            offset += length

    def _end(self) -> None:
        if self._reader is not None:
            os.eventfd_write(self._stop, 1)
            self._reader.join()
            self._reader = None


@contextlib.contextmanager
def witnessing(root: Path, known: KnownSeal | None) -> Iterator[Witness]:
    """Watch a workspace from before the agent starts until its seal is written. Begins and ends with blocking calls.

    Where it is not needed or not possible nothing is watched, and the witness says that it saw nothing.

    Args:
        root: The workspace, in which nothing runs yet.
        known: The seal whose stamps are to count.
    """
    events, stop = -1, os.eventfd(0, os.EFD_CLOEXEC)
    witness: Witness | None = None
    try:
        events = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_CLOEXEC)
        witness = Witness(events, stop, frozenset(known.stamps) if known else frozenset())
        if known is not None and known.stamps and events >= 0:
            with contextlib.suppress(OSError, SealError):  # then every file is read again, which only takes longer
                _attend(witness, root)
        yield witness
    finally:
        if witness is not None:
            witness._end()
        for descriptor in (events, stop):
            if descriptor >= 0:
                os.close(descriptor)


def _attend(witness: Witness, root: Path) -> None:
    top = open_root(root)
    try:
        if not records_mapped_writes(top):
            witness._begin(top)
    finally:
        os.close(top)


def _folders(top: int) -> Iterator[tuple[bytes, int]]:
    """Yield path (with a slash at the end) and descriptor of every folder, parents first; what cannot be opened is left out."""
    stack: list[tuple[bytes, int, list[str] | None]] = [(b"", os.open(".", FOLDER_FLAGS, dir_fd=top), None)]
    try:
        while stack:
            path, folder, below = stack[-1]
            if below is None:
                yield path, folder
                with os.scandir(folder) as listing:
                    below = [entry.name for entry in listing if entry.is_dir(follow_symlinks=False)]
                stack[-1] = (path, folder, below)
            elif below and len(stack) <= MAX_DEPTH:
                name = below.pop()
                with contextlib.suppress(OSError):
                    stack.append((path + os.fsencode(name) + b"/", os.open(name, FOLDER_FLAGS, dir_fd=folder), None))
            else:
                os.close(stack.pop()[1])
    finally:
        for _, folder, _ in stack:
            os.close(folder)
