"""The five routes of the code-session protocol, `GET /health` and `GET /version`.

The Context API throws the body of every answer away that is not 2xx, so an execution always answers 200 and says inside
what went wrong. File routes do answer with an error status: there the status is all that is looked at.
"""

import asyncio
import mimetypes
import os
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from .asked import read_asked
from .courier import Courier
from .errors import BadRequest, NoSuchFile, ServerError
from .executor import Executor, Outcome
from .store import FileEntry, FileStore, OpenFile
from .upload import receive_upload
from .version import ServerVersion, read_version
from .wire import ClientLeft, Receive, Scope, Send, body_chunks, header, read_json_object, send_json, send_start

_CHUNK_BYTES = 512 * 1024

Route = Callable[[Scope, Receive, Send], Awaitable[None]]


class CodeSessionApp:
    """The ASGI application; unknown query parameters (`api-version`, `identifier`, `path`) are ignored."""

    def __init__(self, *, executor: Executor, store: FileStore, courier: Courier) -> None:
        self._courier = courier
        self._executor = executor
        self._store = store
        self._version: ServerVersion | None = None
        self._routes: dict[tuple[str, str], Route] = {
            ("POST", "/code/execute"): self._execute,
            ("POST", "/files/upload"): self._upload,
            ("GET", "/files"): self._list,
            ("POST", "/files/download"): self._download,
            ("POST", "/files/delete"): self._delete,
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._tell_version,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        # The platform joins its endpoint and our path as text, so that a trailing slash there arrives doubled here.
        path = "/" + str(scope["path"]).strip("/")
        route = self._routes.get((scope["method"], path))
        try:
            if route is not None:
                await route(scope, receive, send)
            elif any(path == known for _, known in self._routes):
                await send_json(send, {"detail": f"{path} does not take {scope['method']}."}, 405)
            else:
                await send_json(send, {"detail": f"There is no route {path!r} here."}, 404)
        except ServerError as error:
            await send_json(send, {"detail": str(error)}, error.http_status)
        except ClientLeft:
            return

    async def _execute(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        asked = read_asked({})
        try:
            asked = read_asked(await read_json_object(receive))
            outcome = await self._outcome(asked.code())
        except BadRequest as error:
            outcome = Outcome(results={}, output="", error=str(error))
        await send_json(send, asked.answer(outcome, time.monotonic() - began))

    async def _outcome(self, code: str) -> Outcome:
        carried = await self._courier.carry(code)
        return await self._executor.execute(code) if carried is None else Outcome(results={}, output=carried, error="")

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = await receive_upload(self._store, header(scope, b"content-type"), body_chunks(receive))
        await send_json(send, {"status": "success", "filename": name})

    async def _list(self, scope: Scope, receive: Receive, send: Send) -> None:
        entries = await asyncio.to_thread(self._store.listing)
        await send_json(send, {"value": [_item(entry) for entry in entries]})

    async def _download(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = (await read_json_object(receive)).get("file_name")
        if not isinstance(name, str):
            raise BadRequest("The request body has no text under 'file_name'; send the name that the listing gave.")
        file = await asyncio.to_thread(self._store.open_file, name)
        try:
            await _send_file(send, file, name)
        finally:
            os.close(file.fd)

    async def _delete(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._executor.kill_leftovers()
        await asyncio.to_thread(self._store.wipe)
        await send_json(send, {"status": "success"})

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = await self._known_version()
        await send_json(send, {"status": "ready", "version": known.version, "source_digest": known.source_digest})

    async def _tell_version(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, dict((await self._known_version()).to_wire()))

    async def _known_version(self) -> ServerVersion:
        """Look once, when first asked: most sandboxes of a code interpreter are never asked."""
        if self._version is None:
            self._version = await asyncio.to_thread(read_version)
        return self._version


def _item(entry: FileEntry) -> dict[str, object]:
    return entry.to_wire(mimetypes.guess_type(entry.name, strict=False)[0] or "application/octet-stream")


async def _send_file(send: Send, file: OpenFile, name: str) -> None:
    disposition = f"attachment; filename*=utf-8''{quote(name.rpartition('/')[2], safe='', errors='replace')}"
    headers = [(b"content-type", b"application/octet-stream"), (b"content-disposition", disposition.encode())]
    first = await asyncio.to_thread(os.read, file.fd, min(_CHUNK_BYTES, file.size_bytes))
    if len(first) < min(_CHUNK_BYTES, file.size_bytes):
        raise NoSuchFile(f"The file {name!r} shrank while it was read; ask again.")
    await send_start(send, 200, file.size_bytes, headers)
    left = file.size_bytes
    chunk = first
    while True:
        left -= len(chunk)
        await send({"type": "http.response.body", "body": chunk, "more_body": left > 0})
        if left <= 0:
            return
        chunk = await asyncio.to_thread(os.read, file.fd, min(_CHUNK_BYTES, left))
        if not chunk:
            return  # the file shrank: the server cuts the connection, so that the client sees an incomplete body
