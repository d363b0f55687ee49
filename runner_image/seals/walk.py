"""Walks a hostile tree: every step is relative to an open folder, links are never followed, and nothing but files is opened.

A tree may change while it is walked. What vanishes, cannot be read or is neither file, link nor folder is told to the caller by name.
"""

import errno
import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from runner_image.errors import SealError
from workflow_schemas.seal import MAX_DEPTH, MAX_PATH_BYTES, SealEntry, path_text, tree_sha256

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_READ_BYTES = 1024 * 1024
_KINDS: Set[int] = frozenset((stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK))

Exclude = Callable[[str], bool]
"""Tells whether an entry, given by its path below the root, is to be left out; a folder goes with all that is in it."""

Missed = Callable[[str, str], None]
"""Takes path and reason of something that cannot be sealed."""


class Found(NamedTuple):
    """One entry of the tree, to be read before the next one is asked for."""

    path: str
    """Path below the root, as the os module writes names."""

    name: str
    """Its last part."""

    folder: int
    """Descriptor of the folder it lies in."""

    status: os.stat_result
    """What it is, links not followed."""


class Listing(NamedTuple):
    """What one folder of the tree holds, to be read to its end before the next listing is asked for."""

    path: str
    """Path of the folder below the root with a slash at its end; empty for the root."""

    folder: int
    """Its descriptor."""

    children: Sequence[str]
    """Name of each entry, in no order."""

    admits: Callable[[str, os.stat_result], bool]
    """To be asked of each entry but a file that was admitted before, with its status: whether it can be sealed. Folders that can are
    listed later."""


@dataclass
class _Open:
    fd: int
    path: str
    folders: list[str] | None = None


def excluding(patterns: Iterable[str]) -> Exclude:
    """Return a choice by shell patterns: with a slash they are held against the whole path, without one against each name."""
    names: list[str] = []
    paths: list[str] = []
    for pattern in patterns:
        (paths if "/" in pattern else names).append(fnmatch.translate(pattern.strip("/")))
    by_name = re.compile("|".join(names)) if names else None
    by_path = re.compile("|".join(paths)) if paths else None

    def excluded(path: str) -> bool:
        name = path.rpartition("/")[2]
        return bool((by_name and by_name.match(name)) or (by_path and by_path.match(path)))

    return excluded


def open_root(root: Path) -> int:
    """Open the folder that is to be sealed or filled.

    Raises:
        SealError: It is not there, or a link.
    """
    try:
        return os.open(root, FOLDER_FLAGS)
    except OSError as error:
        raise SealError(f"the folder {str(root)!r} cannot be opened: {error.strerror}") from error


def listings(root: int, excluded: Exclude | None, missed: Missed) -> Iterator[Listing]:
    """Yield what every folder of a tree holds, parents first.

    Args:
        root: Descriptor of the folder.
        excluded: Leaves entries out silently.
        missed: Is told what cannot be sealed.
    """
    stack = [_Open(os.open(".", FOLDER_FLAGS, dir_fd=root), "")]
    try:
        while stack:
            here = stack[-1]
            if here.folders is None:
                here.folders = []
                children = _children(here.fd, here.path, excluded, missed)
                yield Listing(here.path, here.fd, children, partial(_admits, here.path, here.folders, missed))
                here.folders.sort(reverse=True)
            elif here.folders:
                name = here.folders.pop()
                path = f"{here.path}{name}"
                if len(stack) > MAX_DEPTH:
                    missed(path, f"it is more than {MAX_DEPTH} folders deep; what is in it is not sealed")
                    continue
                try:
                    stack.append(_Open(os.open(name, FOLDER_FLAGS, dir_fd=here.fd), f"{path}/"))
                except OSError as error:
                    missed(path, f"the folder cannot be opened: {error.strerror}")
            else:
                os.close(stack.pop().fd)
    finally:
        for here in stack:
            os.close(here.fd)


def walk(root: int, excluded: Exclude | None, missed: Missed) -> Iterator[Found]:
    """Yield every file, link and folder below a folder, parents first; see `listings`."""
    for path, folder, children, admits in listings(root, excluded, missed):
        for name in sorted(children):
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                missed(path + name, reason_of(error))
                continue
            if admits(name, status):
                yield Found(path + name, name, folder, status)


def _children(folder: int, above: str, excluded: Exclude | None, missed: Missed) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError as error:
        missed(above.rstrip("/"), f"the folder cannot be listed: {error.strerror}")
        return []
    return [name for name in names if not excluded(above + name)] if excluded is not None else names


def _admits(above: str, folders: list[str], missed: Missed, name: str, status: os.stat_result) -> bool:
    kind = stat.S_IFMT(status.st_mode)
    if kind not in _KINDS:
        missed(above + name, "it is a pipe, socket or device, which has no content to seal")
        return False
    if len(above) + len(name) > MAX_PATH_BYTES // 4 and len(os.fsencode(above + name)) > MAX_PATH_BYTES:
        missed(above + name, f"its path is longer than {MAX_PATH_BYTES} bytes")
        return False
    if kind == stat.S_IFDIR:
        folders.append(name)
    return True


def open_file(found: Found) -> int:
    """Open a file for reading, never through a link; a pipe that took its place does not block.

    Raises:
        OSError: It cannot be opened.
    """
    return os.open(found.name, _FILE_FLAGS, dir_fd=found.folder)


def reason_of(error: OSError) -> str:
    """Say for people why an entry is left out."""
    if error.errno == errno.ENOENT:
        return "it vanished while the seal was written"
    if error.errno == errno.ELOOP:
        return "it became a link while the seal was written"
    return f"it cannot be read: {error.strerror}"


def hash_tree(root: Path, excluded: Exclude | None = None) -> str:
    """Read a whole folder and return its tree hash, to be held against the one of a seal. Blocks.

    Raises:
        SealError: An entry cannot be read or has no place in a seal.
    """

    def refuse(path: str, reason: str) -> None:
        raise SealError(f"the tree cannot be hashed because of {path_text(os.fsencode(path))!r}: {reason}")

    top, entries = open_root(root), []
    try:
        for found in walk(top, excluded, refuse):
            try:
                entries.append(_hashed(found))
            except OSError as error:
                refuse(found.path, reason_of(error))
    finally:
        os.close(top)
    return tree_sha256(sorted(entries))


def _hashed(found: Found) -> SealEntry:
    path, status = path_text(os.fsencode(found.path)), found.status
    if stat.S_ISDIR(status.st_mode):
        return SealEntry(path, "directory", status.st_mode & 0o777, 0, 0, "", 0, 0)
    if stat.S_ISLNK(status.st_mode):
        target = path_text(os.fsencode(os.readlink(found.name, dir_fd=found.folder)))
        return SealEntry(path, "symlink", 0o777, 0, 0, target, 0, 0)
    file, hasher = open_file(found), hashlib.sha256()
    try:
        while piece := os.read(file, _READ_BYTES):
            hasher.update(piece)
    finally:
        os.close(file)
    return SealEntry(path, "file", status.st_mode & 0o777, 0, 0, hasher.hexdigest(), 0, 0)
