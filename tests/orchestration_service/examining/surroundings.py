"""What is around the service of an installation: an ingress in front of it, the Orchestration API, a pool, and Azure's own interface."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from orchestration_service.version import service_version
from workflow_schemas.sources import own_sources, sources_digest

POOL_TOKEN = "a-token-for-pools"
AZURE_TOKEN = "a-token-for-azure"
POOL_ID = "/subscriptions/00000000-0000-0000-0000-00000000000a/resourceGroups/west/providers/Microsoft.App/sessionPools/claudecodesessions"
EXECUTOR = "0fb8eba5-a2bb-4abe-b1c1-49dfad359bb0"
_OWN = {"host", "connection", "content-length", "transfer-encoding"}


@asynccontextmanager
async def serve(routes: list[Route]) -> AsyncIterator[str]:
    """Serve routes that give their own `Date`."""
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="critical", lifespan="off", date_header=False)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        while not server.started:
            await anyio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True


@dataclass
class Surroundings:
    """All of it, well at first; a test changes one thing."""

    instance_id: str
    service: httpx.AsyncClient
    """Leads to the real service."""

    status: int = 200
    """Status of what the service says of itself; others instead of it."""
    told: dict[str, Any] = field(default_factory=dict)
    """What replaces parts of that."""
    replicas: list[dict[str, Any]] = field(default_factory=list)
    """What replicas say of themselves, in turn."""
    date: str = ""
    """The `Date` of the ingress, in place of the right one."""
    refused: str = ""
    """An instance that the service does not serve."""
    key: str = ""
    """A key that the ingress adds."""
    header_bytes: int = 64 * 1024
    """How large headers may be."""
    orchestrators: list[str] = field(default_factory=lambda: ["LangChain", "ClaudeCode"])
    """What the Orchestration API has listed."""
    orchestration_status: int = 200
    pool_status: int = 200
    health: dict[str, str] = field(default_factory=dict)
    pool: dict[str, Any] = field(default_factory=dict)
    callers: list[str] = field(default_factory=lambda: ["the-context-api"])
    asked: int = 0
    seen: list[str] = field(default_factory=list)
    """Headers of each request."""
    known: dict[str, httpx.Response] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.health = {"status": "ready", "version": service_version(), "source_digest": sources_digest(own_sources())}
        self.pool = {
            "customContainerTemplate": {"containers": [{"resources": {"cpu": 1.0, "memory": "2.0Gi"}}]},
            "sessionNetworkConfiguration": {"status": "EgressDisabled"},
        }

    def routes(self) -> list[Route]:
        return [
            Route("/orchestration/instances/{iid}/status", self._orchestration),
            Route("/pool/health", self._health),
            Route("/azure/{path:path}", self._azure),
            Route("/{path:path}", self._ingress),
        ]

    async def _ingress(self, request: Request) -> Response:
        if sum(len(name) + len(value) for name, value in request.headers.items()) > self.header_bytes:
            return Response(status_code=431)
        assert request.method == "GET", "an examination changes nothing"
        self.seen.append(repr(request.headers.items()))
        answer = await self._passed(request)
        content, status = answer.content, answer.status_code
        if request.url.path.endswith("status") and "async-completions" not in request.url.path:
            replica = self.replicas[self.asked % len(self.replicas)] if self.replicas else {}
            self.asked += 1
            content = json.dumps({**answer.json(), **self.told, **replica}).encode()
            status = self.status if self.status != 200 else status
            if self.refused and self.refused in request.url.path:
                content, status = b"{}", 403
        kept = {"content-type": answer.headers["content-type"], "date": self.date or format_datetime(datetime.now(UTC), usegmt=True)}
        return Response(content, status, headers=kept)

    async def _passed(self, request: Request) -> httpx.Response:
        """What the service says; what it says of itself never changes, and is remembered."""
        path = request.url.path
        if path not in self.known:
            headers = {name: value for name, value in request.headers.items() if name not in _OWN}
            answer = await self.service.get(path, headers=headers | ({"x-api-key": self.key} if self.key else {}))
            if answer.status_code != 200:
                return answer
            self.known[path] = answer
        return self.known[path]

    async def _orchestration(self, request: Request) -> Response:
        """It fails over its own status when it knows an external orchestrator and nobody is named (contract: orchestration, trap 18)."""
        assert request.path_params["iid"] == self.instance_id
        if self.orchestration_status != 200 or ("ClaudeCode" in self.orchestrators and "x-user-identity" not in request.headers):
            return JSONResponse({"error": "failed"}, status_code=self.orchestration_status if self.orchestration_status != 200 else 500)
        return JSONResponse({"name": "OrchestrationAPI", "subordinate_services": [{"name": name} for name in self.orchestrators]})

    async def _health(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {POOL_TOKEN}":
            return Response(status_code=403)
        assert {"api-version", "identifier"} <= request.query_params.keys()
        return JSONResponse(self.health, status_code=self.pool_status)

    async def _azure(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {AZURE_TOKEN}":
            return Response(status_code=401)
        path = "/" + request.path_params["path"]
        if not path.startswith(POOL_ID):
            return Response(status_code=404)
        if path == POOL_ID:
            return JSONResponse({"id": POOL_ID, "properties": self.pool})
        assert path == f"{POOL_ID}/providers/Microsoft.Authorization/roleAssignments"
        definition = f"/subscriptions/x/providers/Microsoft.Authorization/roleDefinitions/{EXECUTOR}"
        other = {"properties": {"principalId": "somebody", "roleDefinitionId": "/a/reader"}}
        given = [{"properties": {"principalId": one, "roleDefinitionId": definition}} for one in self.callers]
        return JSONResponse({"value": [other, *given]})
