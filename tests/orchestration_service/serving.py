"""The service on a real socket, with a pipeline that a test plays by hand."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import uvicorn

from context_client import ContextClient, EmbeddedContext, connect
from context_client.embedded.settings import EmbeddedSettings
from orchestration_service.app import create_app, server_config
from orchestration_service.carrying import Carrier
from orchestration_service.forking import Forks
from orchestration_service.operations import AcceptedTurn, SqliteOperations, StatusBoard
from orchestration_service.security import Doorkeeper
from orchestration_service.sessions import SessionSettings
from orchestration_service.settings import Settings, load_settings
from workflow_schemas.platform import CompletionResponse, TextItem

INSTANCE = "7c1b6f0e-4a52-4d0b-9a86-2f6e5d3b9c10"
KEY = "test-key-0123456789"
ANN = "Ann.Lee@contoso.com"


def identity(upn: str = ANN, **more: Any) -> str:
    return json.dumps({"name": "Ann", "upn": upn, "group_ids": [], **more})


def headers(upn: str = ANN) -> dict[str, str]:
    return {"X-API-KEY": KEY, "X-USER-IDENTITY": identity(upn)}


def completion(**more: Any) -> dict[str, Any]:
    return {"user_prompt": "Fix it.", "agent": {"type": "generic-agent", "name": "coder"}, "objects": {}, **more}


def answer(operation_id: str, text: str = "Fixed.") -> CompletionResponse:
    return CompletionResponse(operation_id=operation_id, completion=text, content=[TextItem(value=text)], prompt_tokens=9)


@dataclass
class Service:
    """A running service as a test sees it."""

    client: httpx.AsyncClient
    context: ContextClient
    operations: SqliteOperations
    board: StatusBoard
    settings: Settings
    turns: list[AcceptedTurn] = field(default_factory=list)
    answer_at_once: bool = False
    fault: Exception | None = None

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    async def start_turn(self, turn: AcceptedTurn) -> None:
        if self.fault:
            raise self.fault
        self.turns.append(turn)
        if self.answer_at_once:
            operation_id = turn.operation.operation_id
            await self.board.finish(operation_id, "Completed", answer(operation_id))

    async def start(self, operation_id: str = "op-1", **more: Any) -> httpx.Response:
        body = completion(operation_id=operation_id, **more)
        return await self.client.post(f"/instances/{INSTANCE}/async-completions", json=body)

    async def poll(self, operation_id: str = "op-1", upn: str = ANN) -> httpx.Response:
        path = f"/instances/{INSTANCE}/async-completions/{operation_id}/status"
        return await self.client.get(path, headers=headers(upn))


async def until(holds: Callable[[], object], timeout_seconds: float = 5) -> None:
    """Wait for something nobody announces."""
    with anyio.fail_after(timeout_seconds):
        while not holds():
            await anyio.sleep(0.005)


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[Service]:
    """Run the service on a free port."""
    wanted = {"instance_id": INSTANCE, "api_key": KEY, "data_dir": folder, "port": 0, **settings}
    loaded = load_settings(_env_file=None, **wanted)
    files = EmbeddedSettings(folder=folder / "context", instance_id=INSTANCE, api_key=loaded.api_key)
    async with (
        SqliteOperations(folder / "operations.db") as operations,
        StatusBoard(operations, instance_id=INSTANCE, flush_seconds=0.05) as board,
        httpx.AsyncClient(headers=headers(), timeout=20) as client,
        connect(EmbeddedContext(server=files)) as context,
        anyio.create_task_group() as tasks,
    ):
        service = Service(client, context, operations, board, loaded)
        forks = Forks(operations, Carrier(context, SessionSettings()))
        doorkeeper = Doorkeeper(instance_id=loaded.instance_id, api_key=loaded.api_key)
        app = create_app(
            settings=loaded, doorkeeper=doorkeeper, operations=operations, board=board, start_turn=service.start_turn, forks=forks
        )
        server = uvicorn.Server(server_config(app, loaded))
        tasks.start_soon(server.serve)
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        client.base_url = httpx.URL(f"http://127.0.0.1:{port}")
        try:
            yield service
        finally:
            server.should_exit = True
