"""What a file name from outside may be, and how it is written in a multipart header.

Pure. The platform's .NET client sends safe names bare, names with blanks quoted, and non-ASCII names as an RFC 2047
word, browsers send raw UTF-8, and others `filename*`; the stock container kept the encoded word as the name on disk.
"""

import os
import re

from .errors import BadName

UPLOAD_PREFIX = ".upload-in-progress-"
"""Names of half-received files; never listed, never accepted."""

MAX_PART_BYTES = 255
MAX_NAME_BYTES = 4000

_PARAMETER = re.compile(r""";\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)""")


def split_name(name: object) -> tuple[str, ...]:
    """Turn a relative file name into its path components.

    Args:
        name: Whatever arrived where a name should be.

    Raises:
        BadName: It is no text, is absolute, climbs, holds a NUL or an empty component, or is too long.
    """
    if not isinstance(name, str) or not name:
        raise BadName("A file name is missing or is not text; send the relative name of a file.")
    if "\0" in name:
        raise BadName("The file name holds a NUL character; rename the file.")
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:
        raise BadName("The file name holds half a surrogate pair; rename the file.") from None
    if size > MAX_NAME_BYTES:
        raise BadName(f"The file name is {size} bytes long; at most {MAX_NAME_BYTES} are possible.")
    parts = tuple(name.split("/"))
    for part in parts:
        _check_part(part, name)
    return parts


def _check_part(part: str, name: str) -> None:
    if part in {"", ".", ".."}:
        raise BadName(f"The file name {name!r} is absolute, climbs or has an empty part; send a plain relative name.")
    size = len(os.fsencode(part))
    if size > MAX_PART_BYTES:
        raise BadName(f"A part of the file name is {size} bytes long; at most {MAX_PART_BYTES} are possible: {name!r}")
    if part.startswith(UPLOAD_PREFIX):
        raise BadName(f"File names must not start with {UPLOAD_PREFIX!r}: {name!r}")


def filename_of(content_disposition: bytes) -> str | None:
    """Find the file name in the header of a multipart part.

    Args:
        content_disposition: The raw value of the part's `Content-Disposition`.

    Returns:
        The decoded name, or None if the part is no file.
    """
    text = content_disposition.decode("utf-8", "surrogateescape")
    parameters = {match[1].lower(): _unquote(match[2]) for match in _PARAMETER.finditer(text)}
    extended = _decode_extended(parameters.get("filename*", ""))
    if extended is not None:
        return extended
    plain = parameters.get("filename")
    return None if plain is None else _decode_word(plain)


def _unquote(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


def _decode_extended(value: str) -> str | None:
    charset, first, rest = value.partition("'")
    _, second, encoded = rest.partition("'")
    if not (first and second):
        return None
    from urllib.parse import unquote_to_bytes  # only ever needed by clients that send this form

    try:
        return unquote_to_bytes(encoded).decode(charset or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return None


def _decode_word(value: str) -> str:
    if not (value.startswith("=?") and value.endswith("?=")):
        return value
    from email.header import decode_header, make_header  # a large import for a rare form

    try:
        return str(make_header(decode_header(value)))
    except (LookupError, ValueError):
        return value
