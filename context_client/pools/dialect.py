"""Speaks the five routes of our sandboxes to a code-interpreter pool, whose own Python sandbox has others.

| ours | theirs |
|---|---|
| `POST /code/execute` | `POST /executions` |
| `GET /files` | `GET /files`, folder by folder: files of folders come back under their relative names |
| `POST /files/download` | `GET /files/{name}/content?path={folder}` |
| `POST /files/upload` | `POST /files` |
| `POST /files/delete` | `POST /executions` of code that empties the folder: deleting one by one leaves folders behind |

Variables of the last statement are not given back by such a pool, so `results` is empty. Who asks in the pool's own words
(`{"properties": {"code": …}}`) is answered in them.
"""

import json
import posixpath
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_MOST_FOLDERS = 2000
_MOST_FILES = 20_000
_GOOD = frozenset({"succeeded", "success", "0"})
_EMPTY = """import os, subprocess
root = "/mnt/data"
def left():
    return [os.path.join(root, name) for name in os.listdir(root)] if os.path.isdir(root) else []
if left():
    subprocess.run(["rm", "-rf", "--", *left()], stderr=-3)
if left():
    subprocess.run(["find", root, "-mindepth", "1", "-type", "d", "-exec", "chmod", "u+rwx", "{}", ";"], stderr=-3)
    subprocess.run(["rm", "-rf", "--", *left()], check=True)
"""


class CodeInterpreterTransport(httpx.AsyncBaseTransport):
    """Translates requests and answers; everything else is the transport's behind it.

    Args:
        inner: The way to the session.
        execution_seconds: How long one execution may take; pools allow 220.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, execution_seconds: float) -> None:
        self._inner = inner
        self._execution_seconds = execution_seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request in the pool's own words.

        Raises:
            httpx.TransportError: As usual; also for an answer without end.
        """
        match request.method, request.url.path:
            case "POST", "/code/execute":
                return await self._execute(request, _object(await request.aread()))
            case "POST", "/files/delete":
                return await self._delete(request)
            case "POST", "/files/upload":
                return await self._inner.handle_async_request(_turned(request, "POST", "/files", stream=request.stream))
            case "POST", "/files/download":
                return await self._download(request)
            case "GET", "/files":
                return await self._list(request)
            case _:
                return _json(404, {"detail": f"a code-interpreter pool has no {request.method} {request.url.path}"})

    async def aclose(self) -> None:
        """Close the transport behind."""
        await self._inner.aclose()

    async def _execute(self, request: httpx.Request, body: Mapping[str, Any]) -> httpx.Response:
        wrapped = body.get("properties") if "code" not in body else None
        code = (wrapped if isinstance(wrapped, dict) else body).get("code")
        if not isinstance(code, str):
            return _json(200, {"detail": {"results": {}, "output": "", "error": "the request has no 'code' that is a text"}})
        asked: dict[str, Any] = {"codeInputType": "Inline", "executionType": "Synchronous", "code": code}
        asked["timeoutInSeconds"] = int(self._execution_seconds)
        response = await self._inner.handle_async_request(_turned(request, "POST", "/executions", content=asked))
        if not response.is_success:
            return response
        said = _object(await _whole(response))
        if wrapped is not None:  # the caller speaks to such a pool itself: also in its first form, like our own server
            return _json(200, said | {"properties": _first_form(said)})
        return _json(200, {"detail": {"results": {}} | _detail(said)})

    async def _delete(self, request: httpx.Request) -> httpx.Response:
        answer = await self._execute(request, {"code": _EMPTY})
        if not answer.is_success:
            return answer
        error = json.loads(await _whole(answer))["detail"]["error"]
        return _json(500, {"detail": error}) if error else _json(200, {"status": "success"})

    async def _download(self, request: httpx.Request) -> httpx.Response:
        name = _object(await request.aread()).get("file_name")
        if not isinstance(name, str) or posixpath.basename(name) in {"", ".", ".."} or ".." in name.split("/"):
            return _json(400, {"detail": "the request has no 'file_name' of a file below the session's folder"})
        folder = "/" + posixpath.dirname(name).strip("/")
        path = f"/files/{quote(posixpath.basename(name), safe='')}/content"
        return await self._inner.handle_async_request(_turned(request, "GET", path, params={"path": folder}))

    async def _list(self, request: httpx.Request) -> httpx.Response:
        found: list[dict[str, Any]] = []
        folders = [""]
        for folder in folders:
            params = {"path": f"/{folder}"} if folder else {}
            response = await self._inner.handle_async_request(_turned(request, "GET", "/files", params=params))
            if not response.is_success:
                return response
            for item in _items(await _whole(response)):
                name = posixpath.join(folder, item["name"])
                if item["type"] == "directory":
                    folders.append(name)
                else:
                    found.append(item | {"name": name, "type": "file"})
            if len(folders) > _MOST_FOLDERS or len(found) > _MOST_FILES:
                raise httpx.ReadError("the session lists more files than anybody reads; pack them into one archive")
        return _json(200, {"value": found})


def _turned(
    request: httpx.Request,
    method: str,
    path: str,
    *,
    params: Mapping[str, str] | None = None,
    content: Mapping[str, Any] | None = None,
    stream: Any = None,
) -> httpx.Request:
    """Make another request for the same session."""
    url = request.url.copy_with(raw_path=path.encode("ascii") + (b"?" + request.url.query if request.url.query else b""))
    url = url.copy_merge_params(dict(params)) if params else url
    if stream is not None:
        return httpx.Request(method, url, headers=request.headers, stream=stream, extensions=request.extensions)
    kept = {name: value for name, value in request.headers.items() if not name.startswith("content-") and name != "transfer-encoding"}
    body = {"json": dict(content)} if content is not None else {}
    return httpx.Request(method, url, headers=kept, extensions=request.extensions, **body)  # type: ignore[arg-type]


def _items(body: bytes) -> list[dict[str, Any]]:
    """Read one folder's listing, of the present form or the first one (`properties`); the five names of ours are all there then."""
    value = _object(body).get("value")
    items = []
    for item in value if isinstance(value, list) else []:
        old = item.get("properties", {}) if isinstance(item, dict) else {}
        name = item.get("name") or old.get("filename") if isinstance(item, dict) else None
        if not isinstance(name, str) or "/" in name:
            continue  # it could not be asked for
        items.append(
            {
                "name": name,
                "type": str(item.get("type") or "file"),
                "contentType": item.get("contentType"),
                "sizeInBytes": int(item.get("sizeInBytes") or old.get("size") or 0),
                "lastModifiedAt": str(item.get("lastModifiedAt") or old.get("lastModifiedTime") or "1970-01-01T00:00:00Z"),
            }
        )
    return items


def _first_form(said: Mapping[str, Any]) -> dict[str, Any]:
    """Put an answer of the present form into the first one."""
    result = said.get("result")
    inside = dict(result) if isinstance(result, dict) else {}
    status = "Success" if _has_succeeded(said) else "Failure"
    return {"status": status, "result": inside.pop("executionResult", None) or ""} | inside


def _detail(said: Mapping[str, Any]) -> dict[str, str]:
    """Read what the pool says of an execution."""
    result = said.get("result") if isinstance(said.get("result"), dict) else {}
    assert isinstance(result, dict)
    output, error = (str(result.get(name) or "") for name in ("stdout", "stderr"))
    if _has_succeeded(said):
        error = ""  # what a program that succeeds writes to stderr would hide its output from the platform's own tool
    else:
        error = error or f"the execution ended with status {said.get('status')!r}"
    return {"output": output, "error": error}


def _has_succeeded(said: Mapping[str, Any]) -> bool:
    return str(said.get("status", "")).lower() in _GOOD


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


async def _whole(response: httpx.Response) -> bytes:
    """Read an answer, not without end, and close it."""
    read = b""
    try:
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) > _LARGEST_ANSWER_BYTES:
                raise httpx.ReadError(f"the answer is longer than {_LARGEST_ANSWER_BYTES} bytes; print less, write a file")
    finally:
        await response.aclose()
    return read


def _json(status: int, value: Mapping[str, Any]) -> httpx.Response:
    """Make an answer that is still to be read, as one from a socket is."""
    body = json.dumps(dict(value)).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))
