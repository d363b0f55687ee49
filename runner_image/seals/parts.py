"""The parts of a seal as tar archives: a writer that cuts before the limit, and a reader that takes nothing but what the writer writes.

The platform looks at the first bytes of a file to tell what it is, hence the harmless folder as the first member (contract: context API
§4.5). Reading is strict on purpose: tar's extensions (long names, sparse files, links) are the usual ways to fool an unpacker.
"""

import contextlib
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from runner_image.errors import SealError
from runner_image.seals.stored import READ_FLAGS, Slot

INDEX_MEMBER = "seal/index.json.zst"
_FOLDER = "seal"
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
_NAME = re.compile(r"seal/(?:index\.json\.zst|packs/[0-9a-f]{64}|extra/[A-Za-z0-9][A-Za-z0-9._-]{0,79})")
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def part_name(stem: str, number: int) -> str:
    """Return the file name of a part; the first has no number."""
    return f"{stem}.tar" if number == 1 else f"{stem}-{number}.tar"


@dataclass
class PartWriter:
    """Writes members one after another; the parts get their names when the block ends well, and are taken away when it does not."""

    target: Path
    stem: str
    max_part_bytes: int
    total_bytes: int = 0
    _numbers: int = 0
    _file: int = -1
    _written: int = 0
    _finished: list[Path] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Number of the part that was written to last."""
        return self._numbers

    @property
    def paths(self) -> tuple[Path, ...]:
        """The parts, once the block has ended."""
        return tuple(self._finished)

    def __enter__(self) -> Self:
        self._open_next()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._close()
                self._publish()
        except BaseException:
            self._discard()
            raise
        if kind is not None:
            self._discard()

    def room_for(self, size: int) -> bool:
        """Tell whether a member fits into an empty part."""
        return _space(0) + _space(size) + len(_END) < self.max_part_bytes

    def begin(self, name: str, size: int) -> int:
        """Announce a member, in the next part if this one has no room; return the part's number."""
        if not self.room_for(size):
            raise SealError(f"{name!r} of {size} bytes does not fit into a part of {self.max_part_bytes} bytes; raise the limit of a part")
        if self._written + _space(size) + len(_END) >= self.max_part_bytes:
            self._close()
            self._open_next()
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o644
        self.write(member.tobuf(tarfile.USTAR_FORMAT))
        return self._numbers

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes of the member that was announced.

        Raises:
            SealError: There is no room. Not OSError: the caller must not take it for a file it could not read.
        """
        view = memoryview(data)
        while view:
            try:
                done = os.write(self._file, view)
            except OSError as error:
                raise SealError(f"the seal {self.stem!r} could not be written: {error.strerror}; make room and seal again") from error
            self._written += done
            view = view[done:]

    def end(self, size: int) -> None:
        """Fill up to the next block after a member of so many bytes."""
        self.write(bytes(-size % _BLOCK))

    def add(self, name: str, data: bytes) -> int:
        """Write a whole member and return the part's number."""
        number = self.begin(name, len(data))
        self.write(data)
        self.end(len(data))
        return number

    def _open_next(self) -> None:
        self._numbers += 1
        name = part_name(self.stem, self._numbers)
        if os.path.lexists(self.target / name):
            raise _is_there(name)
        self._partial(self._numbers).unlink(missing_ok=True)  # of a process that was killed
        self._file = os.open(self._partial(self._numbers), _WRITE_FLAGS, 0o644)
        self._written = 0
        member = tarfile.TarInfo(_FOLDER)
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        self.write(member.tobuf(tarfile.USTAR_FORMAT))

    def _close(self) -> None:
        self.write(_END)
        self.total_bytes += self._written
        os.close(self._file)
        self._file = -1

    def _publish(self) -> None:
        for number in range(1, self._numbers + 1):
            path = self.target / part_name(self.stem, number)
            try:
                os.link(self._partial(number), path)  # unlike a rename, refuses to replace what appeared meanwhile
            except FileExistsError as error:
                raise _is_there(path.name) from error
            self._finished.append(path)
            self._partial(number).unlink()

    def _discard(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        for path in (*self._finished, *map(self._partial, range(1, self._numbers + 1))):
            with contextlib.suppress(OSError):
                path.unlink()
        self._finished.clear()

    def _partial(self, number: int) -> Path:
        return self.target / f".{part_name(self.stem, number)}.partial"


def members(part: Path) -> Iterator[tuple[str, Slot]]:
    """Yield the members of a part without reading their content.

    Raises:
        SealError: It cannot be read, is cut off, or holds what no seal holds.
    """
    try:
        file = os.open(part, READ_FLAGS)
    except OSError as error:
        raise SealError(f"the part {part.name!r} cannot be opened: {error.strerror}") from error
    try:
        yield from _members(part, file)
    except OSError as error:
        raise SealError(f"the part {part.name!r} cannot be read: {error.strerror}") from error
    finally:
        os.close(file)


def _members(part: Path, file: int) -> Iterator[tuple[str, Slot]]:
    length, offset = os.fstat(file).st_size, 0
    while (block := os.pread(file, _BLOCK, offset)) != bytes(_BLOCK):
        if len(block) < _BLOCK:
            raise SealError(f"the part {part.name!r} is cut off; fetch it again")
        try:
            member = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.TarError, ValueError) as error:
            raise SealError(f"the part {part.name!r} is no part of a seal, or damaged: {error}") from error
        offset += _BLOCK
        if member.type == tarfile.REGTYPE and _NAME.fullmatch(member.name) and 0 <= member.size <= length - offset:
            yield member.name, Slot(str(part), offset, member.size)
            offset += member.size + -member.size % _BLOCK
        elif member.type != tarfile.DIRTYPE or member.name != _FOLDER or member.size:
            raise SealError(f"the part {part.name!r} holds {member.name[:120]!r}, which no seal holds, or is cut off there")


def _is_there(name: str) -> SealError:
    return SealError(f"{name!r} is there already and a seal overwrites nothing; choose another stem")


def _space(size: int) -> int:
    return _BLOCK + size + -size % _BLOCK
