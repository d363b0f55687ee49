"""A whole platform to install on, with things of other people in it, and our service beside it."""

import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import uvicorn
from azure.storage.blob.aio import ContainerClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployment_templates.profile import Profile, read_profile
from orchestration_service.deploying.deployment import Deployment
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.installation import Choices, Places, make_deployment, open_places
from tests.emulators.servers import AZURITE_KEY, Emulator
from tests.orchestration_service.configuration.store import serve_store
from tests.orchestration_service.deploying.standins.blob_door import BlobDoor
from tests.orchestration_service.deploying.standins.faults import Faults
from tests.orchestration_service.deploying.standins.management_api import ManagementApiStandIn
from tests.orchestration_service.deploying.standins.stores import Operator, Stores

INSTANCE = "11111111-2222-3333-4444-555555555555"
USERS = "aaaaaaaa-0000-0000-0000-000000000001"
ANTHROPIC_KEY = "sk-ant-the-operators-own-key"
VARIABLES: Mapping[str, str] = {"DEPLOY_ANTHROPIC_APIKEY": ANTHROPIC_KEY}
FEATURED = "FoundationaLLM:UserPortal:Configuration:FeaturedAgentNames"
AGENT_LIST = "FoundationaLLM.Agent/_resource-references.json"

_LISTS: Mapping[str, Any] = {
    "FoundationaLLM.Agent": [("FoundationaLLM", "generic-agent"), ("GenericAgentWorkflow", "workflow")],
    "FoundationaLLM.Prompt": [("FoundationaLLM-v2", "multipart")],
    "FoundationaLLM.AIModel": [],
    "FoundationaLLM.Configuration": [("LangChainAPI", "api-endpoint")],
}


@dataclass
class World:
    """The platform, and an operator who installs on it."""

    faults: Faults
    stores: Stores
    api: ManagementApiStandIn
    container: ContainerClient
    door: BlobDoor
    profile: Profile
    service_status: int = 200

    def places(self, who: Operator | None = None) -> AbstractAsyncContextManager[Places]:
        """The platform as the command reaches it."""
        return open_places(self.profile, credential=who or Operator(), blob_key=AZURITE_KEY, pauses_seconds=(0, 0))

    @asynccontextmanager
    async def deployment(
        self, *, variables: Mapping[str, str] = VARIABLES, who: Operator | None = None, **chosen: bool
    ) -> AsyncIterator[Deployment]:
        """What one run of the command has."""
        async with self.places(who) as places:
            yield await make_deployment(self.profile, places, Choices(**chosen), variables)

    async def apply(self, **chosen: Any) -> list[str]:
        """Install; return what was done."""
        async with self.deployment(**chosen) as deployment:
            return _told(await deployment.apply(lambda finding: None))

    async def plan(self, **chosen: Any) -> list[Finding]:
        """Return the plan."""
        async with self.deployment(**chosen) as deployment:
            return list(await deployment.plan())

    async def remove(self, **chosen: Any) -> list[Finding]:
        """Take everything away; return what was done and what stays."""
        async with self.deployment(**chosen) as deployment:
            return list(await deployment.remove(lambda finding: None))

    async def state(self) -> dict[str, Any]:
        """Everything that is there, as far as it does not differ by chance."""
        blobs = {name: json.loads(await self.read(name)) for name in [one.name async for one in self.container.list_blobs()]}
        roles = sorted((one["scope"], one["role_definition_id"], one["principal_id"]) for one in self.api.assignments)
        settings = {key: (one["value"], one["content_type"]) for key, one in self.stores.settings.items()}
        return {"blobs": blobs, "roles": roles, "settings": settings, "secrets": sorted(self.stores.secrets)}

    async def etags(self) -> dict[str, str]:
        """Which state each blob is in."""
        return {one.name: one.etag async for one in self.container.list_blobs()}

    async def read(self, name: str) -> bytes:
        return await (await self.container.download_blob(name)).readall()

    async def edit(self, name: str, change: Any) -> None:
        """Change a blob as somebody else."""
        content = json.loads(await self.read(name))
        change(content)
        await self.container.upload_blob(name, json.dumps(content).encode(), overwrite=True)

    async def save_agent_in_portal(self, **fields: Any) -> None:
        """Save the agent as the Management Portal does: the workflow's settings and some others do not survive it."""
        name = f"FoundationaLLM.Agent/{self.profile.names.agent}.json"
        agent = json.loads(await self.read(name)) | fields
        agent["workflow"] |= {"properties": None}
        agent["conversation_history_settings"] |= {"history_content_artifact_types": ""}
        await self.container.upload_blob(name, json.dumps(agent).encode(), overwrite=True)
        await self.api.reset("FoundationaLLM.Agent")

    async def _status(self, request: Request) -> Response:
        return JSONResponse({"status": "Ready"}, status_code=self.service_status)


@asynccontextmanager
async def open_world(emulator: Emulator, folder: Path) -> AsyncIterator[World]:
    """Serve a platform until the end of the block."""
    faults, name = Faults(), f"resources-{uuid.uuid4().hex[:12]}"
    async with (
        ContainerClient(emulator.url, name, credential=AZURITE_KEY) as container,
        httpx.AsyncClient(base_url=_origin(emulator.url), trust_env=False) as client,
    ):
        await container.create_container()
        stores, door = Stores(faults), BlobDoor(faults, client)
        api = ManagementApiStandIn(INSTANCE, container, faults)
        await _furnish(stores, api)
        async with serve_store(stores, folder):  # type: ignore[arg-type]  # it has an address and an application, which is all that is asked of it
            world = World(faults, stores, api, container, door, profile=_profile("http://localhost"))
            routes = [
                Route("/status", world._status),
                api.route(),
                Route("/devstoreaccount1/{path:path}", door.answer, methods=["GET", "HEAD", "PUT", "DELETE"]),
            ]
            async with _served(Starlette(routes=routes)) as url:
                api.url = url
                world.profile = _profile(url, app_configuration_url=stores.url, key_vault_url=stores.url, storage_container=name)
                yield world


def _profile(url: str, **platform: str) -> Profile:
    values = {
        "instance_id": INSTANCE,
        "service": {"url": url},
        "models": {"sonnet": "claude-sonnet-4-5"},
        "roles": {"users": [USERS]},
        "platform": {"management_url": url, "storage_url": url, **platform},
    }
    profile = read_profile(values)
    with_account = profile.platform.model_copy(update={"storage_url": f"{url}/devstoreaccount1"})  # emulators have it in the path
    return profile.model_copy(update={"platform": with_account})


async def _furnish(stores: Stores, api: ManagementApiStandIn) -> None:
    stores.set("FoundationaLLM:Instance:Id", INSTANCE)
    stores.set("FoundationaLLM:APIEndpoints:LangChainAPI:Configuration:PollingIntervalSeconds", "10")
    stores.set(FEATURED, "true")
    stores.secrets["foundationallm-apiendpoints-langchainapi-apikey"] = "somebody else's"
    for provider, lines in _LISTS.items():
        listed = [
            {"ObjectId": None, "Name": name, "Filename": f"/{provider}/{name}.json", "Type": kind, "Deleted": False} for name, kind in lines
        ]
        content = {"SchemaVersion": 1, "ResourceReferences": listed, "DefaultResourceName": None}
        await api._write(f"{provider}/_resource-references.json", content)
        for name, kind in lines:
            await api._write(f"{provider}/{name}.json", {"type": kind, "name": name})
        await api.reset(provider)
    api._give("00a53e72-f66e-4c03-8f81-7e885fd2eb35", USERS, "Group", f"/instances/{INSTANCE}", "Everybody reads")


@asynccontextmanager
async def _served(app: Starlette) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        while not server.started:
            await anyio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True


def _origin(url: str) -> str:
    return url.rpartition("/")[0]


def _told(findings: Any) -> list[str]:
    return [f"{one.act} {one.what}" for one in findings if one.acts]
