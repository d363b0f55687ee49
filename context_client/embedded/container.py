"""The five routes of a sandbox, spoken from outside.

A sandbox is hostile: its answers are bounded before they are read, never decompressed, and their text is data. Routes
and readings follow the platform's custom-container protocol to the byte, so that a stock container works too.
"""

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import httpx

from context_client.embedded.blobs import Spool
from context_client.embedded.problems import BAD_JSON, NETWORK, TIMED_OUT, SandboxUnreachable, thrown, to_json
from context_client.embedded.provider import SandboxEndpoint
from context_client.embedded.storage import Blobs
from context_client.multipart import content_type_of, enclose

T = TypeVar("T")

API_VERSION = "2024-10-02-preview"
_PAUSE_SECONDS = 0.1
_MOST_ITEMS = 20_000
_MOST_FOLDERS = 2_000
_NOT_2XX = "the sandbox answered with an error; its own words are not part of the protocol"
_HINT_NOT_2XX = "Unexpected answer of the sandbox; the code may have needed more memory than there is."
_NOT_JSON = "the sandbox's answer was not JSON"
_HINT_NOT_JSON = "Unexpected answer of the sandbox; the code may have run longer than allowed."
_HINT_UNREACHABLE = "The sandbox could not be talked to."


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """One file of a sandbox's store."""

    name: str
    """As listed; only this is sent back to fetch it."""

    parent: str
    """`/` for the root listing, else the folder that was listed."""


class SandboxLine:
    """A kept-open line to one sandbox, for one session id."""

    def __init__(self, *, http: httpx.AsyncClient, endpoint: SandboxEndpoint, session_id: str, versioned: bool, answer_limit: int) -> None:
        self._http = http
        self.size = endpoint.size
        """What the sandbox may use, where its provider says so."""
        self._timeout_seconds = endpoint.timeout_seconds
        self._answer_limit = answer_limit
        base = endpoint.base_url.rstrip("/")
        params = {"api-version": API_VERSION} if versioned else {}
        params |= {"identifier": session_id} | dict(endpoint.params)
        self._listing = httpx.URL(f"{base}/files", params=params)
        self._execute = httpx.URL(f"{base}/code/execute", params=params)
        self._upload = httpx.URL(f"{base}/files/upload", params=params)
        self._download = httpx.URL(f"{base}/files/download", params=params)
        self._delete = httpx.URL(f"{base}/files/delete", params=params)

    async def execute(self, code: str) -> dict[str, str]:
        """Run code; whatever goes wrong is part of the answer, as the real server has it."""
        request = self._http.build_request("POST", self._execute, json={"code": code})
        try:
            async with self._sent(request) as response:
                return interpret_execution(response.status_code, await self._bounded(response))
        except SandboxUnreachable as error:
            return unreachable_execution(str(error))

    async def list_files(self) -> list[StoredItem]:
        """List every file, folders walked breadth first; a sandbox that answers with an error has none.

        Raises:
            Problem: An item lacks one of its five names, or there is no end of them.
            SandboxUnreachable: There was no answer.
        """
        found: list[StoredItem] = []
        folders = [""]
        for folder in folders:
            for item in await self._list_folder(folder):
                if item["type"] == "directory":
                    folders.append(f"{folder}/{item['name']}")
                elif item["type"] == "file":
                    found.append(StoredItem(name=item["name"], parent=folder or "/"))
            if len(found) > _MOST_ITEMS or len(folders) > _MOST_FOLDERS:
                raise thrown(BAD_JSON, f"the sandbox lists more than {_MOST_ITEMS} files; pack them into one archive")
        return found

    async def upload(self, file_name: str, blobs: Blobs, file_path: str, size_bytes: int) -> bool:
        """Send a stored file; False if the sandbox refuses it.

        Raises:
            SandboxUnreachable: There was no answer.
        """
        boundary = secrets.token_hex(16)
        head, tail = enclose(boundary, file_name, None)

        async def body() -> AsyncIterator[bytes]:
            yield head
            async for chunk in blobs.chunks(file_path):
                yield chunk
            yield tail

        headers = {
            "Content-Type": content_type_of(boundary),
            "Content-Length": str(len(head) + size_bytes + len(tail)),
        }

        async def send() -> bool | None:
            async with self._sent(self._http.build_request("POST", self._upload, headers=headers, content=body())) as answer:
                return answer.is_success or None

        return bool(await _twice(send))

    async def download(self, file_name: str, spool: Spool, limit_bytes: int) -> bool:
        """Fetch a file by its listed name; False if the sandbox does not give it, or more than the limit.

        Raises:
            SandboxUnreachable: There was no answer, or it broke off.
        """
        content = json.dumps({"file_name": file_name}).encode("ascii")
        headers = {"Content-Type": "application/json; charset=utf-8"}

        async def receive() -> bool | None:
            async with self._sent(self._http.build_request("POST", self._download, headers=headers, content=content)) as response:
                if not response.is_success:
                    return None
                await spool.clear()
                async for chunk in response.aiter_raw():
                    if spool.size_bytes + len(chunk) > limit_bytes:
                        return False
                    await spool.write(chunk)
            return True

        return bool(await _twice(receive))

    async def delete_all(self) -> bool:
        """Empty the store; False if that failed, which stops nobody.

        Raises:
            SandboxUnreachable: There was no answer.
        """

        async def send() -> bool | None:
            async with self._sent(self._http.build_request("POST", self._delete)) as response:
                return response.is_success or None

        return bool(await _twice(send))

    async def _list_folder(self, folder: str) -> list[dict[str, Any]]:
        url = self._listing.copy_merge_params({"path": folder}) if folder else self._listing

        async def receive() -> list[dict[str, Any]] | None:
            async with self._sent(self._http.build_request("GET", url)) as response:
                return parse_listing(await self._bounded(response)) if response.is_success else None

        return await _twice(receive) or []

    @asynccontextmanager
    async def _sent(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        try:
            with anyio.fail_after(self._timeout_seconds):
                response = await self._http.send(request, stream=True)
                try:
                    yield response
                finally:
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
        except (TimeoutError, httpx.TimeoutException) as error:
            message = f"the sandbox gave no answer within {self._timeout_seconds:g} seconds"
            raise SandboxUnreachable(TIMED_OUT, message) from error
        except (httpx.TransportError, httpx.StreamError, httpx.InvalidURL) as error:
            raise SandboxUnreachable(NETWORK, f"{type(error).__name__}: {error}") from error

    async def _bounded(self, response: httpx.Response) -> bytes:
        pieces: list[bytes] = []
        left = self._answer_limit
        async for chunk in response.aiter_raw():
            left -= len(chunk)
            if left < 0:
                message = f"the sandbox's answer is longer than {self._answer_limit} bytes; print less, write a file"
                raise SandboxUnreachable(NETWORK, message)
            pieces.append(chunk)
        return b"".join(pieces)


async def _twice(ask: Callable[[], Awaitable[T | None]]) -> T | None:
    """Ask again once where the sandbox answered with an error (None), or the way to it broke: all that is asked so may be repeated.

    Raises:
        SandboxUnreachable: There was no answer, the second time or within the time there is.
    """
    try:
        answer = await ask()
        if answer is not None:
            return answer
    except SandboxUnreachable as error:
        if error.title == TIMED_OUT:
            raise
    await anyio.sleep(_PAUSE_SECONDS)
    return await ask()


def parse_listing(body: bytes) -> list[dict[str, Any]]:
    """Read a listing; all five names of every item are required, as in the real server.

    Raises:
        Problem: It is not a listing.
    """
    try:
        items = json.loads(body)["value"]
        for item in items:
            if not all(check(item[name]) for name, check in _ITEM_CHECKS.items()):
                raise ValueError("an item has a field of the wrong type")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise thrown(BAD_JSON, f"the sandbox's listing cannot be read: {type(error).__name__} {error}") from error
    listing: list[dict[str, Any]] = items
    return listing


def interpret_execution(status: int, body: bytes) -> dict[str, str]:
    """Read the sandbox's answer to an execution as the real server does; see the table in the module's tests."""
    if not 200 <= status < 300 or not body.strip():
        return _execution("Failed", _HINT_NOT_2XX, "", _NOT_2XX)
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return _execution("Failed", _HINT_NOT_JSON, "", _NOT_JSON)
    try:
        detail = answer["detail"]
        results, output, error = (_as_text(detail[name]) for name in ("results", "output", "error"))
    except (KeyError, TypeError, RecursionError) as missing:
        return unreachable_execution(f"the sandbox's answer lacks 'detail' or one of its three parts ({missing})")
    return _execution("Succeeded", results, output, error)


def unreachable_execution(message: str) -> dict[str, str]:
    """Make the answer for a sandbox that could not be talked to."""
    return _execution("Failed", _HINT_UNREACHABLE, "", message)


def _execution(status: str, result: str, output: str, error: str) -> dict[str, str]:
    return {"status": status, "execution_result": result, "standard_output": output, "error_output": error}


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value)
    return to_json(value).decode("utf-8")


_ITEM_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str) and value != "",
    "type": lambda value: isinstance(value, str),
    "contentType": lambda value: value is None or isinstance(value, str),
    "sizeInBytes": lambda value: isinstance(value, int),
    "lastModifiedAt": lambda value: isinstance(value, str),
}
