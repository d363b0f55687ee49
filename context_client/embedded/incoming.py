"""The file in an incoming form: the first part with a file name, whatever its field is called.

Bytes go into a spool while the form is read; other parts are read over. The parser tells parts apart, the names are
read by ourselves: `filename*` and RFC 2047 words are what .NET clients send.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from starlette.requests import Request

from context_client.embedded.blobs import Spool
from context_client.embedded.problems import invalid, plain
from context_client.embedded.requests import check_length, too_large
from context_client.embedded.storage import Blobs
from context_client.multipart import file_name_of, parameters_of

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


@dataclass(frozen=True, kw_only=True)
class IncomingFile:
    """A file that arrived."""

    file_name: str
    """Its name, decoded; hostile text."""

    spool: Spool
    """Its bytes."""


@asynccontextmanager
async def incoming_file(request: Request, blobs: Blobs, limit_bytes: int) -> AsyncIterator[IncomingFile]:
    """Read the form's first file; its bytes are gone after the block unless they were stored.

    Raises:
        Problem: 400 for no form, no file or no bytes; 413 over the limit.
    """
    media_type, _, _ = request.headers.get("content-type", "").partition(";")
    boundary = parameters_of(request.headers.get("content-type", "")).get("boundary", "")
    if media_type.strip().lower() != "multipart/form-data" or not boundary:
        raise plain(400, "Send the file as multipart/form-data.")
    check_length(request, limit_bytes)
    parts = _Parts()
    left = limit_bytes
    async with blobs.spool() as spool:
        try:
            parser = MultipartParser(boundary.encode("latin-1"), parts.callbacks())
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    raise too_large(limit_bytes)
                parser.write(chunk)
                if parts.arrived:
                    await spool.write(parts.take())
            parser.finalize()
        except (MultipartParseError, ValueError) as error:
            raise invalid({"file": [f"The form cannot be read: {error}"]}) from error
        if parts.file_name is None:
            raise plain(400, "The form has no file.")
        if not parts.ended:
            raise invalid({"file": ["The form ends in the middle of the file."]})
        if spool.size_bytes == 0:
            raise plain(400, "The file is empty.")
        yield IncomingFile(file_name=parts.file_name, spool=spool)


class _Parts:
    """Follows the parser through the form and keeps only what belongs to the first file."""

    def __init__(self) -> None:
        self.arrived = bytearray()
        self.file_name: str | None = None
        self.ended = False
        self._inside = False
        self._name = bytearray()
        self._value = bytearray()
        self._headers: dict[str, str] = {}

    def take(self) -> bytearray:
        taken, self.arrived = self.arrived, bytearray()
        return taken

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._data,
            "on_part_end": self._part_end,
        }

    def _header_end(self) -> None:
        self._headers.setdefault(self._name.decode("latin-1").lower(), self._value.decode("utf-8", "replace"))
        self._name.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        if self.file_name is None:
            self.file_name = file_name_of(self._headers.get("content-disposition", ""))
            self._inside = self.file_name is not None

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._inside:
            self.arrived += data[start:end]

    def _part_end(self) -> None:
        self.ended = self.ended or self._inside
        self._inside = False
