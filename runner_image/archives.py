"""Reads tar and zip archives member by member, with every oddity of the two formats turned into the same few words.

Nothing is believed: sizes and numbers are charged to the budget before a byte is unpacked, compressed tars are refused (they would have to
be unpacked to be counted), and an archive that ends without its end mark was cut off on its way.
"""

import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from runner_image.errors import InputError

_COPY_BYTES = 1024 * 1024
_LINK_BYTES = 4096
_BLOCK = tarfile.BLOCKSIZE
_DOS = 0
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")

Spend = Callable[[int], None]
"""Charges one entry of so many bytes to the budget; raises InputError when it is spent."""

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    OverflowError,
    MemoryError,
)
"""What the two libraries raise when bytes are not what they should be."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member of an archive."""

    kind: Literal["file", "folder", "link", "same", "other"]
    """`link` is symbolic, `same` a hard link to an earlier member, `other` a device, pipe or socket."""

    parts: tuple[str, ...]
    """Its path below the archive's top; empty for the top itself. Hostile."""

    executable: bool = False
    """Whether a file may be executed."""

    content: Iterator[bytes] = field(default_factory=lambda: iter(()))
    """Content of a file, to be read before the next member is asked for."""

    points_to: str = ""
    """Target of a symbolic link. Hostile."""

    same_as: tuple[str, ...] = ()
    """Path of the member a hard link means. Hostile."""


def members_of(name: str, source: Path, spend: Spend) -> Generator[Member, None, None]:
    """Yield the members of a tar or zip archive; a folder that holds everything else is stripped.

    Args:
        name: Name of the archive, for messages.
        source: The file.
        spend: Charges each member to the budget, all of them before the first is yielded.

    Raises:
        InputError: The archive is damaged, encrypted, compressed as a whole, of another format, or above the budget.
    """
    with source.open("rb") as file:
        start = file.read(_BLOCK)
    if start.startswith(_COMPRESSED):
        raise InputError(f"the archive {name!r} is compressed as a whole; send it as .zip, or as .tar that is not compressed")
    read = _zip_members if start.startswith((b"PK\x03\x04", b"PK\x05\x06")) else _tar_members
    with _translated(name):
        for member in read(source, spend):
            yield replace(member, content=_translated_content(name, member.content))


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except NotImplementedError as error:
        raise _damaged(name, error) from error
    except RecursionError as error:
        raise InputError(f"the archive {name!r} is nested beyond all measure") from error
    except RuntimeError as error:
        raise InputError(f"the archive {name!r} cannot be read (is it encrypted?): {error}") from error
    except _DAMAGE as error:
        raise _damaged(name, error) from error


def _translated_content(name: str, content: Iterator[bytes]) -> Iterator[bytes]:
    """Reading a member can fail long after it was announced."""
    with _translated(name):
        yield from content


def _damaged(name: str, error: BaseException) -> InputError:
    return InputError(f"the archive {name!r} is damaged or of a kind that cannot be read: {str(error)[:200] or type(error).__name__}")


def _tar_members(source: Path, spend: Spend) -> Generator[Member, None, None]:
    with tarfile.open(source, "r:") as archive:
        members = []
        for entry in archive:
            spend(entry.size if entry.isreg() else 0)
            members.append(entry)
        with source.open("rb") as file:
            file.seek(archive.offset)
            if file.read(_BLOCK) != bytes(_BLOCK):
                raise tarfile.ReadError("it ends without its end mark; it was cut off or changed")
        top = _single_top([(_parts(entry.name), entry.isdir()) for entry in members])
        for entry in members:
            parts = _stripped(_parts(entry.name), top)
            if entry.isdir():
                yield Member(kind="folder", parts=parts)
            elif entry.isreg():
                executable = bool(entry.mode & 0o111)
                yield Member(kind="file", parts=parts, executable=executable, content=_tar_content(archive, entry))
            elif entry.islnk():
                yield Member(kind="same", parts=parts, same_as=_stripped(_parts(entry.linkname), top))
            elif entry.issym():
                yield Member(kind="link", parts=parts, points_to=entry.linkname)
            else:
                yield Member(kind="other", parts=parts)


def _tar_content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> Iterator[bytes]:
    stream = archive.extractfile(entry)
    while stream is not None and (piece := stream.read(_COPY_BYTES)):
        yield piece


def _zip_members(source: Path, spend: Spend) -> Generator[Member, None, None]:
    with zipfile.ZipFile(source) as archive:
        entries = archive.infolist()
        for entry in entries:
            spend(entry.file_size)
        top = _single_top([(_zip_parts(entry), _is_zip_folder(entry)) for entry in entries])
        for entry in entries:
            parts = _stripped(_zip_parts(entry), top)
            mode = entry.external_attr >> 16
            if _is_zip_folder(entry):
                yield Member(kind="folder", parts=parts)
            elif stat.S_ISLNK(mode):
                if entry.file_size > _LINK_BYTES:
                    raise InputError(f"the archive holds a link with a target that is too long: {'/'.join(parts)[:80]!r}")
                yield Member(kind="link", parts=parts, points_to=os.fsdecode(archive.read(entry)))
            elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                yield Member(kind="other", parts=parts)
            else:
                yield Member(kind="file", parts=parts, executable=bool(mode & 0o111), content=_zip_content(archive, entry))


def _zip_content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(entry) as stream:
        while piece := stream.read(_COPY_BYTES):
            yield piece


def _zip_parts(entry: zipfile.ZipInfo) -> tuple[str, ...]:
    """Return the path of a zip entry; only archives made on Windows use backslashes between folders."""
    return _parts(entry.orig_filename.replace("\\", "/") if entry.create_system == _DOS else entry.orig_filename)


def _is_zip_folder(entry: zipfile.ZipInfo) -> bool:
    return entry.is_dir() or (entry.create_system == _DOS and entry.orig_filename.endswith("\\"))


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _single_top(paths: list[tuple[tuple[str, ...], bool]]) -> str:
    """Return the one folder that everything lies in, or an empty string; `.git` alone is a repository, not a wrapping.

    Args:
        paths: Path of each member, and whether it is a folder.
    """
    tops = {path[0] for path, _ in paths if path}
    wraps = any(len(path) > 1 for path, _ in paths) and all(is_folder for path, is_folder in paths if len(path) == 1)
    return tops.pop() if len(tops) == 1 and wraps and not tops & {".git", ".."} else ""


def _stripped(parts: tuple[str, ...], top: str) -> tuple[str, ...]:
    return parts[1:] if top and parts[:1] == (top,) else parts
