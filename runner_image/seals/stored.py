"""Reads what the parts of a seal store, piece by piece.

Imports next to nothing, because a second process does so too and lives for a fraction of a second (see `companion`).
"""

import os
import sys
from typing import NamedTuple

from runner_image.errors import SealError

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WINDOW_LOG_MAX = 24


class Slot(NamedTuple):
    """Where a member lies."""

    part: str
    """Path of the part."""

    offset: int
    """Where in the part the member's bytes begin."""

    size: int
    """How many they are."""

    @property
    def part_name(self) -> str:
        """File name of the part, for people."""
        return self.part.rpartition("/")[2]


def read_slot(slot: Slot) -> bytes:
    """Return the bytes of a member.

    Raises:
        SealError: The part cannot be read or changed meanwhile.
    """
    try:
        file = os.open(slot.part, READ_FLAGS)
        try:
            data = os.pread(file, slot.size, slot.offset)
        finally:
            os.close(file)
    except OSError as error:
        raise SealError(f"the part {slot.part_name!r} cannot be read: {error.strerror}") from error
    if len(data) != slot.size:
        raise SealError(f"the part {slot.part_name!r} is cut off; fetch it again")
    return data


def expand(data: bytes, max_bytes: int, what: str, *, exact: bool = False) -> bytes:
    """Unpack one Zstandard frame, however much it claims to hold.

    Raises:
        SealError: It is damaged, or holds more than `max_bytes` (or, if `exact`, less).
    """
    reader = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})
    try:
        content = reader.decompress(data, max_length=max_bytes + 1)
    except zstd.ZstdError as error:
        raise SealError(f"{what} is damaged: {error}") from error
    if len(content) > max_bytes or not reader.eof or reader.unused_data or (exact and len(content) != max_bytes):
        raise SealError(f"{what} is damaged: it does not hold what the index says, or more than {max_bytes} bytes")
    return content
