"""Sandboxes that can reach this machine's network, as those of a pool with egress can: the local ones, with one wall less.

No provider of the product makes such sandboxes on this machine.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskStatus
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from context_client import ContextClient
from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes.launch import Launch
from context_client.sandboxes.local import LocalSandboxes
from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import Platform
from orchestration_service.composition import open_service
from orchestration_service.model_access import GATEWAY_PATH
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.endpoint import serve
from orchestration_service.settings import load_settings
from tests.journeys.replicas import INSTANCE, KEY, free_port
from tests.stage import MODEL_KEY, Stage

ALONE = '"--unshare-all", '
UPN = "ann@example.com"


class ConnectedSandboxes(LocalSandboxes):
    """Local sandboxes that share the machine's network."""

    def _launch(self, *args: Any) -> Launch:
        launch = super()._launch(*args)
        assert ALONE in launch.words[-1]
        return replace(launch, words=(*launch.words[:-1], launch.words[-1].replace(ALONE, f'{ALONE}"--share-net", ')))


@dataclass
class Replica:
    """A replica of the service, and what comes to its gateway."""

    url: str
    stage: Stage
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Path and token of each request to the gateway."""
    _told_to_end: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tokens(self) -> list[str]:
        return list(dict.fromkeys(token for _, token in self.calls))

    async def close(self) -> None:
        """Have it end as on SIGTERM."""
        self._told_to_end.set()
        await self._ended.wait()

    async def live(self) -> None:
        await self._told_to_end.wait()


@dataclass
class Ground:
    """What replicas stand on."""

    folder: Path
    models_url: str
    models: Starlette
    context_url: str
    context: ContextClient

    async def run(self, gateway_url: str = "", *, task_status: TaskStatus[Replica]) -> None:
        """Run a replica in a task of its own, so that each can end at any time."""
        port = free_port()
        settings = load_settings(
            instance_id=INSTANCE,
            api_key=KEY,
            data_dir=self.folder / "shared",
            context_url=self.context_url,
            context_api_key=KEY,
            model_access_url=gateway_url or f"http://127.0.0.1:{port}",
            model_access_key="one-key-for-all-replicas",
        )
        calls: list[tuple[str, str]] = []
        async with (
            open_service(settings, routes=ModelRoutes(default_key=SecretStr(MODEL_KEY))) as service,
            serve(_noting(service.app, calls), port=port) as served,
        ):
            platform = Platform(served.base_url, INSTANCE, KEY, service.sandbox)
            async with open_caller(platform, UPN) as caller:
                mine = Caller(caller.http, self.context, caller.identity, INSTANCE)
                replica = Replica(served.base_url, Stage(platform, mine, self.models_url, self.models), calls)
                task_status.started(replica)
                await replica.live()
        replica._ended.set()


@asynccontextmanager
async def open_connected(folder: Path, *, replicas: int = 1, gateway_url: str = "") -> AsyncIterator[list[Replica]]:
    """Start Context API, a place for models, and replicas that share a store; nothing outlives the block.

    Args:
        folder: Where all of them keep their data.
        replicas: How many.
        gateway_url: Where the gateways are said to be, instead of where they are.
    """
    embedded = EmbeddedSettings(folder=folder / "context", instance_id=INSTANCE, api_key=SecretStr(KEY))
    models = Starlette()
    async with (
        serve(models) as endpoint,
        ConnectedSandboxes() as sandboxes,
        open_app(embedded, providers={DEFAULT_PROVIDER_NAME: sandboxes}) as app,
        serve(app) as context,
        ContextClient(base_url=context.base_url, api_key=KEY, instance_id=INSTANCE) as client,
        anyio.create_task_group() as tasks,
    ):
        ground = Ground(folder, endpoint.base_url, models, context.base_url, client)
        opened = [await tasks.start(ground.run, gateway_url) for _ in range(replicas)]
        yield opened
        for replica in opened:
            await replica.close()


def _noting(app: ASGIApp, calls: list[tuple[str, str]]) -> ASGIApp:
    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(GATEWAY_PATH):
            token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
            calls.append((scope["path"].removeprefix(GATEWAY_PATH), token))
        await app(scope, receive, send)

    return noting
