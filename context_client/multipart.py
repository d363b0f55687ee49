"""One file in a multipart body, written as it goes out and named as it comes in.

File names are the hard part: quotes, line breaks and non-ASCII text have three spellings on this wire (bare, RFC 2047
word, RFC 5987 `filename*`), and a name put in carelessly could add a header or a part of its own.
"""

import base64
import binascii
import re
from urllib.parse import quote, unquote_to_bytes

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_QUOTABLE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]*")
_ENCODED_WORD = re.compile(r"=\?([A-Za-z0-9_.:-]+)\?([bBqQ])\?([^?]*)\?=")
_PARAMETER = re.compile(r';\s*([A-Za-z0-9_*-]+)\s*=\s*("(?:\\.|[^"\\])*"|[^;]*)')


def disposition_of(file_name: str, *, field: str = "file") -> str:
    """Write a part's `Content-Disposition` as .NET does: bare token, quoted ASCII, or an RFC 2047 word.

    Names with quotes, backslashes or control characters, which .NET refuses, also travel as a word.
    """
    return f"form-data; name={field}; filename={_spelled(file_name)}"


def attachment_of(file_name: str) -> str:
    """Write an answer's `Content-Disposition` with both names: `filename` plain, `filename*` exact."""
    plain = re.sub(r"[^\x20\x21\x23-\x5b\x5d-\x7e]", "_", file_name)
    name = plain if _TOKEN.fullmatch(plain) else f'"{plain}"'
    return f"attachment; filename={name}; filename*=UTF-8''{quote(file_name.encode('utf-8', 'replace'), safe='')}"


def file_name_of(disposition: str) -> str | None:
    """Read the file name out of a `Content-Disposition` header: `filename*` first, then `filename`, words decoded.

    Returns:
        The name, possibly empty; None if the header carries none.
    """
    parameters = parameters_of(disposition)
    extended = parameters.get("filename*")
    if extended is not None:
        charset, _, rest = extended.partition("'")
        _, separator, escaped = rest.partition("'")
        if separator:
            return _decoded(unquote_to_bytes(escaped), charset or "utf-8")
    plain = parameters.get("filename")
    return None if plain is None else _words_decoded(plain)


def parameters_of(header: str) -> dict[str, str]:
    """Read the parameters of a header, names in lower case, quotes removed; the first of equal names wins."""
    found: dict[str, str] = {}
    for match in _PARAMETER.finditer(header):
        value = match.group(2).strip()
        if value.startswith('"') and value.endswith('"') and len(value) >= 2:
            # Only \" is an escape in practice: browsers send Windows paths with bare backslashes.
            value = value[1:-1].replace('\\"', '"')
        found.setdefault(match.group(1).lower(), value)
    return found


def enclose(boundary: str, file_name: str, content_type: str | None) -> tuple[bytes, bytes]:
    """Write what stands before and after the one file's bytes."""
    head = f"--{boundary}\r\nContent-Disposition: {disposition_of(file_name)}\r\n"
    if content_type is not None:
        head += f"Content-Type: {content_type}\r\n"
    return f"{head}\r\n".encode("ascii"), f"\r\n--{boundary}--\r\n".encode("ascii")


def content_type_of(boundary: str) -> str:
    """Write the header of the whole body; the boundary is quoted, as the platform does."""
    return f'multipart/form-data; boundary="{boundary}"'


def _spelled(file_name: str) -> str:
    if _TOKEN.fullmatch(file_name) and "=?" not in file_name:
        return file_name
    if _QUOTABLE.fullmatch(file_name) and "=?" not in file_name:
        return f'"{file_name}"'
    word = base64.b64encode(file_name.encode("utf-8", "replace")).decode("ascii")
    return f'"=?utf-8?B?{word}?="'


def _words_decoded(text: str) -> str:
    # White space between two words belongs to the encoding, not to the name.
    joined = re.sub(r"\?=\s+=\?", "?==?", text)
    return _ENCODED_WORD.sub(_word_decoded, joined)


def _word_decoded(match: re.Match[str]) -> str:
    charset, encoding, payload = match.groups()
    if encoding in "bB":
        try:
            data = base64.b64decode(payload + "=" * (-len(payload) % 4), validate=True)
        except (binascii.Error, ValueError):
            return match.group(0)
    else:
        data = unquote_to_bytes(payload.replace("_", " ").replace("%", "%25").replace("=", "%"))
    return _decoded(data, charset)


def _decoded(data: bytes, charset: str) -> str:
    # Python has codecs that raise, or make text that no UTF-8 can carry; only plain ones may be named by strangers.
    known = charset.lower() in {"us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252"}
    return data.decode(charset if known else "utf-8", "replace")
