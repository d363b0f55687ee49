"""Model requests as differences to an earlier one.

A model request repeats the whole conversation. The mailbox sends it as a Zstandard frame whose dictionary is an earlier
request, byte for byte (the "patch from" mode of RFC 8878 implementations), so the bytes on the wire grow with what is new.
Both ends keep the last few bodies by their SHA-256. See docs/decisions/0002.
"""

import hashlib
import sys
from collections import OrderedDict

from workflow_schemas.errors import DeltaError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_WINDOW_LOG_MAX = 27
_LEVEL = 9
MAX_BODY_BYTES = 64 * 1024 * 1024
"""Largest body that is rebuilt; a frame that claims more is refused before anything is allocated."""


def digest(body: bytes) -> str:
    """Return the SHA-256 of a body as 64 hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def compress(body: bytes, base: bytes = b"") -> bytes:
    """Compress a body against a base that the other side has.

    Args:
        body: Bytes to send.
        base: Bytes the other side has; empty for none.

    A checksum of the body goes along (4 bytes): expanded against another base, a body would be rebuilt as something else unnoticed.
    """
    window_log = max(10, min(_WINDOW_LOG_MAX, (len(body) + len(base)).bit_length()))
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {parameter.compression_level: _LEVEL, parameter.window_log: window_log, parameter.checksum_flag: 1}
    dictionary = zstd.ZstdDict(base, is_raw=True).as_prefix if len(base) >= 8 else None
    return zstd.compress(body, options=options, zstd_dict=dictionary)


def expand(data: bytes, base: bytes = b"") -> bytes:
    """Rebuild a body.

    Args:
        data: What :func:`compress` returned.
        base: The same base.

    Raises:
        DeltaError: The data is damaged, belongs to another base, or claims more than :data:`MAX_BODY_BYTES`.
    """
    dictionary = zstd.ZstdDict(base, is_raw=True).as_prefix if len(base) >= 8 else None
    reader = zstd.ZstdDecompressor(dictionary, {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})
    try:
        claimed = zstd.get_frame_info(data).decompressed_size
        if claimed is not None and claimed > MAX_BODY_BYTES:
            raise DeltaError(f"a compressed body claims {claimed} bytes; {MAX_BODY_BYTES} are the limit")
        body = reader.decompress(data, max_length=MAX_BODY_BYTES)
    except zstd.ZstdError as error:
        raise DeltaError(f"a compressed body cannot be rebuilt: {error}") from error
    if not reader.eof:
        raise DeltaError(f"a compressed body is cut off or larger than {MAX_BODY_BYTES} bytes")
    if reader.unused_data:
        raise DeltaError(f"{len(reader.unused_data)} bytes follow a compressed body; it is damaged")
    return body


class Bodies:
    """The last bodies one end of the mailbox remembers, newest last.

    Both ends apply the same rule (keep the newest up to `max_bytes`, at least two), but neither relies on it: a base that the
    other end has forgotten is answered with an error, and the body is then sent whole.
    """

    def __init__(self, max_bytes: int = 32 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    def add(self, body: bytes) -> str:
        """Remember a body and return its digest."""
        name = digest(body)
        self._bodies[name] = body
        self._bodies.move_to_end(name)
        while len(self._bodies) > 2 and sum(map(len, self._bodies.values())) > self._max_bytes:
            self._bodies.popitem(last=False)
        return name

    def get(self, name: str) -> bytes | None:
        """Return a remembered body, or None."""
        return self._bodies.get(name)

    def closest(self, body: bytes) -> tuple[str, bytes]:
        """Return digest and bytes of the body that shares the longest beginning, or two empty values."""
        best, length = "", 0
        for name, candidate in reversed(self._bodies.items()):
            shared = _shared_prefix(candidate, body)
            if shared > length:
                best, length = name, shared
        return best, self._bodies[best] if best else b""


def _shared_prefix(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
