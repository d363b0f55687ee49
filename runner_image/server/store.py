"""The session's files on disk: every path is walked component by component below the data root.

Hostile code owns the data root and may put a symbolic link anywhere at any moment. So no path string is ever handed
to the system: each directory is opened relative to its parent and never through a link, which leaves nothing to race.
All functions block; the server calls them in worker threads.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .errors import BadName, NoSuchFile, ServerError, StoreFull, StoreUnusable
from .names import UPLOAD_PREFIX, split_name

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 100  # deeper trees are somebody's joke, and each level holds a descriptor while it is walked


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One line of the listing, with the facts its wire form needs."""

    name: str
    """Path relative to the data root, as shown: bytes that are no UTF-8 are replaced."""

    size_bytes: int
    """Size when it was listed."""

    modified_at: datetime
    """Time of the last change, UTC."""

    def to_wire(self, content_type: str) -> dict[str, object]:
        """Write the item as the Context API reads it; it insists on the first five keys."""
        return {
            "name": self.name,
            "type": "file",
            "contentType": content_type,
            "sizeInBytes": self.size_bytes,
            "lastModifiedAt": self.modified_at.isoformat().replace("+00:00", "Z"),
            "parentPath": self.name.rpartition("/")[0],
        }


@dataclass(frozen=True, kw_only=True)
class OpenFile:
    """A file opened for download; the receiver closes the descriptor."""

    fd: int
    """Read-only descriptor of a regular file."""

    size_bytes: int
    """Size when it was opened."""


class Upload:
    """A file that is being received: invisible until `commit`, gone without trace after `abort`."""

    def __init__(self, parent_fd: int, final_name: str) -> None:
        self._parent_fd = parent_fd
        self._final_name = final_name
        self._temporary_name = UPLOAD_PREFIX + secrets.token_hex(8)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._temporary_name, flags, 0o644, dir_fd=parent_fd)

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            StoreFull: No room is left.
        """
        with _translated(self._final_name):
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]

    def commit(self) -> None:
        """Put the file in place of whatever had its name.

        Raises:
            BadName: A directory has that name.
        """
        with _translated(self._final_name):
            os.rename(self._temporary_name, self._final_name, src_dir_fd=self._parent_fd, dst_dir_fd=self._parent_fd)
        self._close()

    def abort(self) -> None:
        """Forget what was received; harmless after `commit`."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._temporary_name, dir_fd=self._parent_fd)
        self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._parent_fd)
        self._fd = self._parent_fd = -1


class FileStore:
    """The files below one data root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def prepare(self) -> None:
        """Create the data root if it vanished.

        Raises:
            StoreUnusable: Something that is no directory is in its place.
        """
        os.close(self._open_root())

    def begin_upload(self, name: object) -> Upload:
        """Start to receive a file; missing parent directories are created.

        Raises:
            BadName: The name leaves the data root or runs through something that is no directory.
            StoreFull: No room is left.
        """
        *parents, last = split_name(name)
        with _translated(str(name)):
            parent_fd = self._open_parent(parents, create=True)
            try:
                return Upload(parent_fd, last)
            except BaseException:
                os.close(parent_fd)
                raise

    def open_file(self, name: object) -> OpenFile:
        """Open a file for download by the name the listing gave.

        Raises:
            BadName: The name leaves the data root.
            NoSuchFile: There is no regular file under that name.
        """
        parts = split_name(name)
        try:
            return self._open_regular(parts)
        except OSError as error:
            original = self._find_shown(str(name)) if "\N{REPLACEMENT CHARACTER}" in str(name) else None
            if original is None:
                raise NoSuchFile(f"There is no file {name!r} in the session's store; list the files first.") from error
        try:
            return self._open_regular(tuple(original.split("/")))
        except OSError as error:
            raise NoSuchFile(f"The file {name!r} vanished from the session's store.") from error

    def listing(self) -> list[FileEntry]:
        """List all regular files below the root, by name; whatever is odd or vanishes meanwhile is left out."""
        entries: dict[str, FileEntry] = {}
        for path, status in self._walk():
            shown = _shown(path)
            entries.setdefault(shown, FileEntry(name=shown, size_bytes=status.st_size, modified_at=_moment(status.st_mtime)))
        return [entries[name] for name in sorted(entries)]

    def wipe(self) -> None:
        """Delete everything below the root and make sure the root itself is there.

        Raises:
            StoreUnusable: Something could not be deleted.
        """
        if self._root.is_symlink():
            self._root.unlink(missing_ok=True)
        root_fd = self._open_root()
        try:
            _empty(root_fd)
            left = _names(root_fd)
        finally:
            os.close(root_fd)
        if left:
            raise StoreUnusable(f"{len(left)} entries of {str(self._root)!r} cannot be deleted, such as {left[0]!r}.")

    def _open_root(self) -> int:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            return os.open(self._root, _DIRECTORY)
        except OSError as error:
            raise StoreUnusable(f"The data root {str(self._root)!r} cannot be opened: {error.strerror}.") from error

    def _open_parent(self, parents: list[str] | tuple[str, ...], *, create: bool) -> int:
        fd = self._open_root()
        try:
            for part in parents:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=fd)
                child = os.open(part, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = child
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _open_regular(self, parts: tuple[str, ...]) -> OpenFile:
        parent_fd = self._open_parent(parts[:-1], create=False)
        try:
            # Without O_NONBLOCK a named pipe would hold the thread until somebody writes into it.
            fd = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=parent_fd)
        finally:
            os.close(parent_fd)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "not a regular file")
        return OpenFile(fd=fd, size_bytes=status.st_size)

    def _find_shown(self, shown: str) -> str | None:
        return next((path for path, _ in self._walk() if _shown(path) == shown), None)

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        root_fd = self._open_root()
        yield from _walk_below(root_fd, "", depth=0)


def _walk_below(fd: int, prefix: str, *, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        try:
            names = sorted(_names(fd))
        except OSError:
            return
        for name in names:
            if name.startswith(UPLOAD_PREFIX):
                continue
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                child = os.open(name, _DIRECTORY, dir_fd=fd) if stat.S_ISDIR(status.st_mode) else None
            except OSError:
                continue
            if child is None:
                if stat.S_ISREG(status.st_mode):
                    yield prefix + name, status
            elif depth < _MAX_DEPTH:
                yield from _walk_below(child, f"{prefix}{name}/", depth=depth + 1)
            else:
                os.close(child)
    finally:
        os.close(fd)


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)  # code may set any time stamp, also one that no calendar has


def _empty(root_fd: int) -> None:
    """Delete all entries without recursion: code may nest directories deeper than any stack or descriptor table."""
    waiting = _names(root_fd)
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            directory = _open_for_emptying(name, root_fd)
            if directory is None:
                os.unlink(name, dir_fd=root_fd)
                continue
            try:
                waiting.extend(_lift_children(directory, root_fd))
            finally:
                os.close(directory)
            os.rmdir(name, dir_fd=root_fd)


def _lift_children(directory: int, root_fd: int) -> Iterator[str]:
    for child in _names(directory):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.stat(child, dir_fd=directory, follow_symlinks=False).st_mode):
                _make_accessible(child, directory)
                lifted = UPLOAD_PREFIX + secrets.token_hex(8)
                os.rename(child, lifted, src_dir_fd=directory, dst_dir_fd=root_fd)
                yield lifted
            else:
                os.unlink(child, dir_fd=directory)


def _open_for_emptying(name: str, parent_fd: int) -> int | None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
        return None
    _make_accessible(name, parent_fd)
    return os.open(name, _DIRECTORY, dir_fd=parent_fd)


def _make_accessible(name: str, parent_fd: int) -> None:
    """Give ourselves back what code took away from its own directory, without following a link put in its place."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    try:
        if os.fstat(fd).st_mode & 0o700 != 0o700:
            Path(f"/proc/self/fd/{fd}").chmod(0o700)
    finally:
        os.close(fd)


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except ServerError:
        raise
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise StoreFull(f"There is no room left in the session's store for {name!r}; delete files first.") from error
        raise BadName(f"The name {name!r} cannot be written in the session's store: {error.strerror}.") from error
