"""Lets any sandbox of ours answer like the Python sandbox of a code-interpreter pool.

The routes are those that the Context API calls (`/executions`, `/files`, `/files/{name}/content`) and the older names of the
first. Deleting single files is left out: nobody here asks for it.
"""

import json
import posixpath
import time
from typing import Any
from urllib.parse import unquote

import anyio
import httpx

from context_client.embedded.provider import SandboxEndpoint, SandboxProvider
from context_client.pools.baseline import fact
from context_client.size import SandboxSize


class InterpreterSandboxes:
    """A provider whose sandboxes speak the routes of a code interpreter.

    Args:
        sandboxes: Where they really live.
        execution_seconds: Longest execution; by default what real pools allow.
    """

    def __init__(self, sandboxes: SandboxProvider, *, execution_seconds: float | None = None) -> None:
        self._sandboxes = sandboxes
        self._execution_seconds = float(fact("limit.execution_seconds")) if execution_seconds is None else execution_seconds
        self._known: dict[str, tuple[SandboxEndpoint, SandboxEndpoint]] = {}

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        """Give the way to a session."""
        real = await self._sandboxes.endpoint(session_id=session_id, upn=upn, size=size)
        known = self._known.get(session_id)
        if known is None or known[0] != real:
            way = _Translated(real.transport or httpx.AsyncHTTPTransport(), self._execution_seconds)
            given = SandboxEndpoint(base_url=real.base_url, transport=way, headers=real.headers, timeout_seconds=real.timeout_seconds)
            known = self._known[session_id] = (real, given)
        return known[1]


class _Translated(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport, execution_seconds: float) -> None:
        self._inner = inner
        self._execution_seconds = execution_seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode("ascii").partition("?")[0]
        folder = request.url.params.get("path", "").strip("/")
        if request.method == "POST" and path in fact("code_interpreter.execute_routes"):
            return await self._execute(json.loads(await request.aread()))
        if request.method == "POST" and path == "/files":
            url = request.url.copy_with(raw_path=b"/files/upload")
            return await self._inner.handle_async_request(httpx.Request("POST", url, headers=request.headers, stream=request.stream))
        if request.method == "GET" and path == "/files":
            return await self._list(folder)
        if request.method == "GET" and path.startswith("/files/") and path.endswith("/content"):
            name = unquote(path.removeprefix("/files/").removesuffix("/content"))
            return await self._ask("/files/download", {"file_name": posixpath.join(folder, name)})
        return httpx.Response(404, json={"error": {"code": "NotFound", "message": path}})

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _execute(self, asked: dict[str, Any]) -> httpx.Response:
        asked = asked.get("properties", asked)
        began = time.monotonic()
        detail = {"output": "", "error": "the execution took too long"}
        with anyio.move_on_after(min(float(asked.get("timeoutInSeconds") or self._execution_seconds), self._execution_seconds)):
            answer = await self._ask("/code/execute", {"code": asked["code"]})
            detail = json.loads(await answer.aread())["detail"]
            await answer.aclose()
        status = fact("code_interpreter.failure_status") if detail["error"] else fact("code_interpreter.success_status")
        took = int((time.monotonic() - began) * 1000)
        result = {"stdout": detail["output"], "stderr": detail["error"], "executionResult": "", "executionTimeInMilliseconds": took}
        return httpx.Response(200, json={"status": status, "result": result})

    async def _list(self, folder: str) -> httpx.Response:
        answer = await self._inner.handle_async_request(httpx.Request("GET", "http://sandbox/files"))
        files = json.loads(await answer.aread())["value"]
        await answer.aclose()
        shown: dict[str, dict[str, Any]] = {}
        for item in files:
            inside = item["name"].removeprefix(f"{folder}/") if folder else item["name"]
            if folder and inside == item["name"]:
                continue
            first, _, deeper = inside.partition("/")
            entry = {"name": first, "type": "directory" if deeper else "file", "sizeInBytes": 0 if deeper else item["sizeInBytes"]}
            shown.setdefault(first, entry | {"contentType": item["contentType"], "lastModifiedAt": item["lastModifiedAt"]})
        return httpx.Response(200, json={"value": list(shown.values())})

    async def _ask(self, path: str, content: dict[str, Any]) -> httpx.Response:
        return await self._inner.handle_async_request(httpx.Request("POST", f"http://sandbox{path}", json=content))
