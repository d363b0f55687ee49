"""Receives a file from a multipart body, straight to disk.

The first part that has a file name counts, whatever its field is called: the platform sends exactly one. Memory stays
at a megabyte however large the file is.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from .errors import BadRequest, ServerError
from .names import filename_of
from .store import FileStore, Upload

_FLUSH_BYTES = 1024 * 1024


class _Parts:
    """Collects what the parser calls out: the name of the first file, and its bytes."""

    def __init__(self) -> None:
        self.filename: str | None = None
        self.pending = bytearray()
        self.complete = False
        self._field = bytearray()
        self._value = bytearray()
        self._in_file = False

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        if self.filename is None and bytes(self._field).lower() == b"content-disposition":
            self.filename = filename_of(bytes(self._value))
            self._in_file = self.filename is not None
        self._field.clear()
        self._value.clear()

    def part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.pending += data[start:end]

    def part_end(self) -> None:
        self._in_file = False

    def end(self) -> None:
        self.complete = True


async def receive_upload(store: FileStore, content_type: bytes, body: AsyncIterator[bytes]) -> str:
    """Store the first file of a multipart body; it appears under its name only when all of it is there.

    Args:
        store: Where it goes.
        content_type: The request's header, with the boundary.
        body: The request's body as it arrives; read to its end also when the file is refused.

    Returns:
        The file's name.

    Raises:
        BadRequest: No multipart body, or none with a file, or an incomplete one.
        BadName: The name is not possible here.
        StoreFull: No room is left.
    """
    from python_multipart.exceptions import MultipartParseError  # 35 ms that sandboxes without uploads do not pay

    parts = _Parts()
    upload: Upload | None = None
    refusal: ServerError | None = None
    write = _parser(_boundary(content_type), parts)
    try:
        async for chunk in body:
            if refusal is not None:
                continue  # read on: a client that is still sending would not see the answer
            try:
                write(chunk)
                if upload is None and parts.filename is not None:
                    upload = await asyncio.to_thread(store.begin_upload, parts.filename)
                if upload is not None and len(parts.pending) >= _FLUSH_BYTES:
                    await asyncio.to_thread(upload.write, bytes(parts.pending))
                    parts.pending.clear()
            except MultipartParseError as error:
                refusal = BadRequest(f"The multipart body is malformed: {error}.")
            except ServerError as error:
                refusal = error
        if refusal is not None:
            raise refusal
        if upload is None or parts.filename is None or not parts.complete:
            raise BadRequest("The body holds no complete file; send multipart/form-data with one part with a filename.")
        await asyncio.to_thread(_finish, upload, bytes(parts.pending))
        return parts.filename
    finally:
        if upload is not None:
            upload.abort()


def _finish(upload: Upload, rest: bytes) -> None:
    upload.write(rest)
    upload.commit()


def _parser(boundary: bytes, parts: _Parts) -> Callable[[bytes], object]:
    from python_multipart import MultipartParser

    parser = MultipartParser(
        boundary,
        {
            "on_header_field": parts.header_field,
            "on_header_value": parts.header_value,
            "on_header_end": parts.header_end,
            "on_part_data": parts.part_data,
            "on_part_end": parts.part_end,
            "on_end": parts.end,
        },
    )
    return parser.write


def _boundary(content_type: bytes) -> bytes:
    kind, _, parameters = content_type.partition(b";")
    if kind.strip().lower() == b"multipart/form-data":
        for parameter in parameters.split(b";"):
            name, _, value = parameter.partition(b"=")
            if name.strip().lower() == b"boundary" and (boundary := value.strip().strip(b'"')):
                return boundary
    raise BadRequest("The body is no multipart/form-data with a boundary; send the file as a form part.")
