"""Will the platform take this file as a record? What it would refuse travels inside an archive instead.

The platform's gate (contract: context API §4.5) looks at the first bytes, and only then at the name: text that happens to begin like a
program (`MZ`, `BM`, `I I`) is refused, and so is a picture under a wrong ending. This is the strict reading of that rule; a file that
passes here passes there, and one that does not loses nothing but the comfort of being a record of its own.
"""

import re
from collections.abc import Callable, Mapping

SNIFFED_BYTES = 64 * 1024
"""How much of a file's start decides."""

_TEXT = frozenset(
    "c cpp cs css csv html ini java js json jsonl md php py rb rtf sh tex toml ts tsv txt xml yaml yml".split()
)  # fmt: skip
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_XML = (b"<?xml ", b"\xef\xbb\xbf<?xml ")
_RTF = b"{\\rtf"
_STARTS_OF_OTHERS = (
    *(b"%PDF", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"II*\x00", b"MM\x00*", b"I I", b"BM", _OLE, b"7z\xbc\xaf", b"Rar!"),
    *(b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"ID3", b"AES", b"MZ", b"\x7fELF", *_ZIP),
)


def passes(ending: str, start: bytes) -> bool:
    """Whether a file of this ending, lower case and without dot, and with this start becomes a record.

    Args:
        ending: Last part of the name.
        start: The first :data:`SNIFFED_BYTES` of the file, or all of it.
    """
    if ending in _TEXT:
        return _passes_as_text(ending, start)
    fits = _FITS.get(ending)
    return fits is not None and fits(start)


def is_text(ending: str) -> bool:
    """Whether the platform stores files of this ending as text, which it may re-encode."""
    return ending in _TEXT


def _passes_as_text(ending: str, start: bytes) -> bool:
    if start.startswith(_XML):
        return ending == "xml"
    if start.startswith(_RTF):
        return ending == "rtf"
    if start.startswith(_STARTS_OF_OTHERS) or start[257:262] == b"ustar" or start[8:12] in (b"WAVE", b"WEBP"):
        return False
    return b"\0" not in start and len(_CONTROL.findall(start)) * 100 <= max(0, len(start) - 1)


def _is_office(start: bytes) -> bool:
    return b"[Content_Types].xml" in start and any(folder in start for folder in (b"word/", b"ppt/", b"xl/"))


def _is_office_of(start: bytes, folder: bytes) -> bool:
    """Whether a document is of one kind and no other; the platform takes the first kind that fits."""
    return start.startswith(_ZIP) and _is_office(start) and [found for found in (b"word/", b"ppt/", b"xl/") if found in start] == [folder]


_FITS: Mapping[str, Callable[[bytes], bool]] = {
    "pdf": lambda start: start.startswith(b"%PDF"),
    "png": lambda start: start.startswith(b"\x89PNG\r\n\x1a\n"),
    "jpg": lambda start: start.startswith(b"\xff\xd8\xff"),
    "jpeg": lambda start: start.startswith(b"\xff\xd8\xff"),
    "gif": lambda start: start.startswith(b"GIF8"),
    "bmp": lambda start: start.startswith(b"BM"),
    "tiff": lambda start: start.startswith((b"II*\x00", b"MM\x00*")),
    "wav": lambda start: start.startswith(b"RIFF") and start[8:12] == b"WAVE",
    "doc": lambda start: start.startswith(_OLE),
    "xls": lambda start: start.startswith(_OLE),
    "ppt": lambda start: start.startswith(_OLE),
    "docx": lambda start: _is_office_of(start, b"word/"),
    "pptx": lambda start: _is_office_of(start, b"ppt/"),
    "xlsx": lambda start: _is_office_of(start, b"xl/"),
    "zip": lambda start: start.startswith(_ZIP) and not _is_office(start),
    "tar": lambda start: start[257:262] == b"ustar" and not start.startswith((*_STARTS_OF_OTHERS, *_XML, _RTF)),
}
"""What the start of a file has to be, for endings that are not text."""
