"""Text is stored as UTF-8 without a byte order mark, whatever it came as.

So does the real server, and so a hash over a text file may not survive. What is UTF-8 already must, to the byte.
"""

import codecs
from functools import cache

from charset_normalizer import from_bytes

# Guessing reads everything it is given several times; this much is enough for it to be sure.
_GUESSED_BYTES = 256 * 1024


def to_utf8(data: bytes) -> bytes:
    """Re-encode text. Slow for large legacy text: call it off the event loop.

    Returns:
        The same bytes if they are ASCII or UTF-8; without the mark if they started with one; otherwise the text in
        UTF-8, read in the most likely charset, or as Windows-1252 where none is likely.
    """
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _guess(data).encode("utf-8", "replace")
    return data


def _guess(data: bytes) -> str:
    best = from_bytes(data[:_GUESSED_BYTES]).best()
    if best is not None and best.encoding not in {"utf_8", "ascii"}:
        try:
            return data.decode(best.encoding).removeprefix("\ufeff")
        except (UnicodeDecodeError, LookupError):
            pass
    return data.decode("latin-1").translate(_windows_1252())


@cache
def _windows_1252() -> dict[int, str]:
    # Windows-1252 is Latin-1 but for 32 places; five of those have no character and stay control codes, as in .NET.
    return {value: bytes([value]).decode("cp1252", "ignore") or chr(value) for value in range(0x80, 0xA0)}
