"""A State API on a real socket, with the habits of the platform's: see the contract's section on it.

Newest result by whole second, random ids for results without one, one log line per PUT, 404 for unknown operations, 403 for
another instance. Documents of one operation share a partition, so a result under the operation's id replaces it.
"""

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

KEY = "state-api-key"
Document = dict[str, Any]


@dataclass
class StateApi:
    """What it holds, and how it fails."""

    instance_id: str
    url: str = ""
    documents: dict[str, dict[str, Document]] = field(default_factory=dict)
    logs: list[Document] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Each accepted call, in order: method and what is behind the operation's id."""
    failing_with: int | None = None

    def app(self) -> Starlette:
        root = "/instances/{iid}/operations/{oid}"
        return Starlette(
            routes=[
                Route(root, self._create, methods=["POST"]),
                Route(root, self._update, methods=["PUT"]),
                Route(root, self._read, methods=["GET"]),
                Route(f"{root}/result", self._add_result, methods=["POST"]),
                Route(f"{root}/result", self._result, methods=["GET"]),
            ]
        )

    def newest_result(self, operation_id: str) -> Document | None:
        results = [one for one in self.documents.get(operation_id, {}).values() if one["type"] == "LongRunningOperationResult"]
        return max(results, key=lambda one: one["_ts"], default=None)  # the first of a second wins, be it newest or not

    def _refusal(self, request: Request) -> Response | None:
        if self.failing_with is not None:
            return Response(status_code=self.failing_with)
        if request.headers.get("x-api-key") != KEY:
            return Response(status_code=401)
        if request.path_params["iid"] != self.instance_id:
            return Response(status_code=403)
        return None

    def _put(self, operation_id: str, document: Document) -> None:
        self.documents.setdefault(operation_id, {})[document["id"]] = {**document, "_ts": int(time.time())}

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        return self._write(request, {**body, "status": "InProgress", "status_message": "started"})

    async def _update(self, request: Request) -> Response:
        return self._write(request, await request.json())

    def _write(self, request: Request, body: Document) -> Response:
        operation_id = request.path_params["oid"]
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if body["operation_id"] != operation_id or not body["upn"]:
            return Response(status_code=400)
        document = {**body, "id": operation_id, "type": "LongRunningOperation"}
        self._put(operation_id, document)
        self.logs.append({"operation_id": operation_id, "status": body["status"]})
        self.calls.append(request.method)
        return JSONResponse(document)

    async def _read(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        operation_id = request.path_params["oid"]
        found = self.documents.get(operation_id, {}).get(operation_id)
        return JSONResponse({**found, "result": self.newest_result(operation_id)}) if found else Response(status_code=404)

    async def _add_result(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        body, operation_id = await request.json(), request.path_params["oid"]
        if body["operation_id"] != operation_id:
            return Response(status_code=400)
        if operation_id not in self.documents:
            return Response(status_code=404)
        result = {**body, "id": body.get("id") or str(uuid.uuid4()), "type": "LongRunningOperationResult"}
        self._put(operation_id, result)
        self.calls.append("POST /result")
        return JSONResponse(result)

    async def _result(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        newest = self.newest_result(request.path_params["oid"])
        return JSONResponse(newest) if newest else Response(status_code=404)


@asynccontextmanager
async def serve_state_api(instance_id: str) -> AsyncIterator[StateApi]:
    """Serve one on a free port until the end of the block."""
    state = StateApi(instance_id)
    server = uvicorn.Server(uvicorn.Config(state.app(), host="127.0.0.1", port=0, log_level="critical", lifespan="off"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        while not server.started:
            await anyio.sleep(0.01)
        state.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield state
        server.should_exit = True
