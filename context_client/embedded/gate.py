"""One judgement: may this file become a record, and as what?

The content decides, the name must fit. Magic bytes come first, so text that happens to start like a program (`MZ`,
`BM`) is refused as the real server refuses it; what has no magic and looks like text is as good as its extension; the
rest is unknown. Two refusals: the type is not supported (415), or it is, but under another extension (422).
Reasons and the table of outcomes: the platform's rules since `0.9.7-post1`, with their surprises kept on purpose, so
that whoever passes here passes there.
"""

import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass

from context_client.embedded.settings import FilePolicy

SNIFFED_BYTES = 64 * 1024
"""How much of a file's start is looked at."""

OCTET_STREAM = "application/octet-stream"
_PLAIN = "text/plain"
_ZIP = "application/x-compressed"
_OFFICE = "application/vnd.openxmlformats-officedocument."
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_EXTENSION = re.compile(r"\.([^./\\]+)$")

_TEXT_TYPES: Mapping[str, str] = dict.fromkeys(("c", "cpp", "cs", "php", "rb", "tex", "ts", "txt"), _PLAIN) | {
    "css": "text/css",
    "csv": "text/csv",
    "html": "text/html",
    "ini": "text/x-ini",
    "java": "text/x-java-source",
    "js": "application/javascript",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "md": "text/markdown",
    "py": "text/x-python",
    "rtf": "application/rtf",
    "sh": "text/x-shellscript",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}
_EXTENSIONS_BY_TYPE: Mapping[str, set[str]] = {
    "application/pdf": {"pdf"},
    f"{_OFFICE}wordprocessingml.document": {"docx"},
    f"{_OFFICE}presentationml.presentation": {"pptx"},
    f"{_OFFICE}spreadsheetml.sheet": {"xlsx"},
    "application/msword": {"doc", "xls", "ppt"},  # one container format for all three; the name tells them apart
    "application/rtf": {"rtf"},
    "application/x-tar": {"tar"},
    _ZIP: {"zip"},
    "text/xml": {"xml"},
    "image/bmp": {"bmp"},
    "image/gif": {"gif"},
    "image/jpeg": {"jpeg", "jpg"},
    "image/png": {"png"},
    "image/tiff": {"tiff"},
    "audio/wav": {"wav"},
}
_LEGACY_OFFICE: Mapping[str, str] = {"doc": "application/msword", "xls": "application/vnd.ms-excel", "ppt": "application/vnd.ms-powerpoint"}
_MEDIA = frozenset({"image/bmp", "image/gif", "image/jpeg", "image/png", "image/tiff", "audio/wav"})
_ARCHIVES = frozenset({_ZIP, "application/x-tar"})

# Start of file -> type. Types outside the table above are known and unsupported.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"I I", "image/tiff"),
    (b"BM", "image/bmp"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/msword"),
    (b"{\\rtf", "application/rtf"),
    (b"<?xml ", "text/xml"),
    (b"\xef\xbb\xbf<?xml ", "text/xml"),
    (b"7z\xbc\xaf\x27\x1c", _ZIP),
    (b"Rar!\x1a\x07", _ZIP),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"ID3", "audio/mpeg"),
    (b"AES", "application/x-aes"),
    (b"MZ", "application/x-msdownload"),
    (b"\x7fELF", "application/x-elf"),
)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The file may become a record."""

    content_type: str
    """Type to record; the sender's own is not asked."""

    extension: str
    """Last extension, lower case, without dot; empty if there is none."""

    is_text: bool
    """True if it is stored as UTF-8, whatever it came as."""

    is_media: bool
    """True for images and sound, which have size limits of their own."""

    @property
    def is_archive(self) -> bool:
        """True for zip and tar, which the safety check does not open."""
        return self.content_type in _ARCHIVES


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The file is not taken."""

    status: int
    """415: not supported; 422: does not fit its name, or failed the safety check."""

    detail: str
    """What is wrong and what would pass."""


def judge_content(file_name: str, start: bytes, policy: FilePolicy) -> Pass | Refusal:
    """Decide by content and name, for files of every origin.

    Args:
        file_name: Original name, hostile text.
        start: The first `SNIFFED_BYTES` of the file, or all of it.
        policy: Strict or permissive.
    """
    extension = extension_of(file_name)
    detected = detect(start)
    if policy.gate == "permissive":
        return _permit(extension, detected)
    if detected == _PLAIN:
        if extension not in _TEXT_TYPES:
            hint = f"append '.txt' to the name (for example {file_name[:80] + '.txt'!r}) or pack it as zip or tar"
            return Refusal(status=422, detail=f"{file_name[:200]!r} is text, which its extension does not say; {hint}")
        return _passed(extension, _TEXT_TYPES[extension], is_text=True)
    if detected not in _EXTENSIONS_BY_TYPE:
        detail = f"{file_name[:200]!r} was detected as {detected}, which is not supported; pack it as zip or tar"
        return Refusal(status=415, detail=detail)
    if extension not in _EXTENSIONS_BY_TYPE[detected] or start.startswith((b"7z\xbc\xaf", b"Rar!")):
        detail = f"{file_name[:200]!r} was detected as {detected}, which does not belong to its extension"
        return Refusal(status=422, detail=detail)
    recorded = _LEGACY_OFFICE.get(extension, detected)
    return _passed(extension, recorded, is_text=detected in {"text/xml", "application/rtf"})


def judge_user_upload(file_name: str, passed: Pass, size_bytes: int, policy: FilePolicy) -> Refusal | None:
    """Decide by the administrator's list and limits, for what users upload to conversations and agents.

    Args:
        file_name: Original name, for the message.
        passed: What `judge_content` said.
        size_bytes: Length as received; negative where media may have any size (agent files).
        policy: The list and the limits.
    """
    if policy.gate == "permissive":
        return None
    if passed.extension not in policy.allowed_extensions:
        detail = f"{file_name[:200]!r}: files with extension {passed.extension!r} may not be uploaded; pack it as zip"
        return Refusal(status=415, detail=detail)
    limit = policy.context_max_bytes.get(passed.extension)
    if passed.is_media and size_bytes >= 0 and (limit is None or size_bytes > limit):
        detail = f"{file_name[:200]!r} has {size_bytes} bytes; for this kind of media the limit is {limit or 0}"
        return Refusal(status=415, detail=detail)
    return None


def processing_type(passed: Pass, size_bytes: int, policy: FilePolicy) -> str:
    """Decide how a user's upload reaches a prompt: whole, by search, or not by itself."""
    if passed.extension not in policy.pipeline_extensions:
        return "none"
    limit = policy.context_max_bytes.get(passed.extension)
    if passed.is_media and limit is not None and size_bytes <= limit:
        return "completion_request_context"
    return "data_pipeline"


def judge_safety(file_name: str, file_id: str, passed: Pass, policy: FilePolicy) -> Refusal | None:
    """Decide in the place of the safety pipeline, which looks at user uploads to conversations."""
    exempt = passed.is_media or passed.is_archive or passed.content_type in _LEGACY_OFFICE.values()
    if policy.safety_check == "pass" or exempt:
        return None
    detail = f"{file_name[:200]!r} ({file_id}): there is no safety pipeline to look at it; pack it as zip or tar"
    return Refusal(status=422, detail=detail)


def extension_of(file_name: str) -> str:
    """Read the last extension, lower case, without dot; empty if there is none."""
    return suffix_of(file_name).lstrip(".").lower()


def suffix_of(file_name: str) -> str:
    """Read the last extension with its dot, in its case; empty if there is none."""
    match = _EXTENSION.search(file_name)
    return "" if match is None else match.group(0)


def detect(start: bytes) -> str:
    """Name the type of a file by its start."""
    for magic, content_type in _MAGIC:
        if start.startswith(magic):
            return content_type
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _detect_in_zip(start)
    if start[:4] == b"RIFF" and start[8:12] in {b"WAVE", b"WEBP"}:
        return "audio/wav" if start[8:12] == b"WAVE" else "image/webp"
    if start[257:262] == b"ustar":
        return "application/x-tar"
    return _PLAIN if _looks_like_text(start[:SNIFFED_BYTES]) else OCTET_STREAM


def _detect_in_zip(start: bytes) -> str:
    if b"[Content_Types].xml" in start:
        for folder, kind in (
            (b"word/", "wordprocessingml.document"),
            (b"ppt/", "presentationml.presentation"),
            (b"xl/", "spreadsheetml.sheet"),
        ):
            if folder in start:
                return f"{_OFFICE}{kind}"
    return _ZIP


def _looks_like_text(start: bytes) -> bool:
    return b"\x00" not in start and len(_CONTROL.findall(start)) * 100 <= max(len(start) - 1, 0)


def _passed(extension: str, content_type: str, *, is_text: bool) -> Pass:
    return Pass(content_type=content_type, extension=extension, is_text=is_text, is_media=content_type in _MEDIA)


def _permit(extension: str, detected: str) -> Pass:
    if detected == _PLAIN:
        return _passed(extension, _TEXT_TYPES.get(extension, _PLAIN), is_text=extension in _TEXT_TYPES)
    if detected != OCTET_STREAM:
        return _passed(extension, detected, is_text=False)
    guessed = mimetypes.guess_type(f"x.{extension}", strict=True)[0] if extension.isascii() else None
    return _passed(extension, guessed or OCTET_STREAM, is_text=False)
