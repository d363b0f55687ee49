"""An embedded Context API per test, with small real containers behind it."""

import asyncio
import base64
import contextlib
import json
import shutil
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from context_client import ContextClient, UserIdentity
from context_client.conformance.context_api import Ground
from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxEndpoint
from context_client.embedded.settings import EmbeddedSettings
from context_client.multipart import file_name_of
from context_client.size import SandboxSize

INSTANCE = "11111111-2222-3333-4444-555555555555"
KEY = "a-key-for-tests"


def container(folder: Path) -> Starlette:
    """The smallest correct container: five routes on a folder, each execution a child Python."""

    async def execute(request: Request) -> Response:
        code = (await request.json())["code"]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", code, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, error = await child.communicate()
        failed = error.decode() if child.returncode else ""
        return JSONResponse({"detail": {"results": {}, "output": output.decode(), "error": failed}})

    async def upload(request: Request) -> Response:
        head, _, rest = (await request.body()).partition(b"\r\n\r\n")
        name = file_name_of(head.decode("latin-1").replace("\r\n", ";")) or ""
        (folder / name).write_bytes(rest[: rest.rindex(b"\r\n--")])
        return JSONResponse({"status": "success", "filename": name})

    async def listing(request: Request) -> Response:
        return JSONResponse({"value": [_item(folder, path) for path in _files(folder)]})

    async def download(request: Request) -> Response:
        path = folder / (await request.json())["file_name"]
        return Response(path.read_bytes() if path.is_file() else b"", 200 if path.is_file() else 500)

    async def delete(request: Request) -> Response:
        await asyncio.to_thread(_empty, folder)
        return JSONResponse({"status": "success"})

    return Starlette(
        routes=[
            Route("/code/execute", execute, methods=["POST"]),
            Route("/files", listing),
            Route("/files/upload", upload, methods=["POST"]),
            Route("/files/download", download, methods=["POST"]),
            Route("/files/delete", delete, methods=["POST"]),
        ]
    )


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _item(folder: Path, path: Path) -> dict[str, object]:
    return {
        "name": str(path.relative_to(folder)),
        "type": "file",
        "contentType": "application/octet-stream",
        "sizeInBytes": path.stat().st_size,
        "lastModifiedAt": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "parentPath": "",
    }


class FolderProvider:
    """One container per session, started on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.endpoints: dict[str, SandboxEndpoint] = {}

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        if session_id not in self.endpoints:
            files = self.folder / base64.urlsafe_b64encode(session_id.encode()).decode()[:200]
            files.mkdir(parents=True)
            transport = httpx.ASGITransport(app=container(files))
            self.endpoints[session_id] = SandboxEndpoint(base_url="http://sandbox", transport=transport)
        return self.endpoints[session_id]


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, app: object) -> None:
        super().__init__(uvicorn.Config(app, log_level="critical", lifespan="off"))  # type: ignore[arg-type]
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextlib.asynccontextmanager
async def serve(app: object) -> AsyncIterator[str]:
    """Serve an app on a free port of the loopback interface; gives its address."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = _Server(app)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: server.serve(sockets=[bound]))
            await server.listening.wait()
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            server.should_exit = True


@pytest.fixture
def user() -> UserIdentity:
    return UserIdentity(name="Dana Scott", user_name="Dana.Scott@contoso.example", upn="Dana.Scott@contoso.example")


@pytest.fixture
def other_user() -> UserIdentity:
    return UserIdentity(name="Eve", upn="eve@contoso.example")


@pytest.fixture
def provider(tmp_path: Path) -> FolderProvider:
    return FolderProvider(tmp_path / "sandboxes")


@pytest.fixture
def settings(tmp_path: Path) -> EmbeddedSettings:
    return EmbeddedSettings.model_validate({"folder": tmp_path / "context", "instance_id": INSTANCE, "api_key": KEY})


@pytest.fixture
async def app(settings: EmbeddedSettings, provider: FolderProvider) -> AsyncIterator[FastAPI]:
    async with open_app(settings, providers={DEFAULT_PROVIDER_NAME: provider}) as opened:
        yield opened


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A bare HTTP client with key and user, to look at the wire itself."""
    headers = {"X-API-KEY": KEY, "X-USER-IDENTITY": json.dumps({"upn": "Dana.Scott@contoso.example"})}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://context/instances/{INSTANCE}", headers=headers) as client:
        yield client


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[ContextClient]:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with ContextClient(base_url="http://context", api_key=KEY, instance_id=INSTANCE, transport=transport) as opened:
        yield opened


@pytest.fixture
def ground_for(user: UserIdentity, other_user: UserIdentity) -> Callable[[ContextClient], Ground]:
    return lambda client: Ground(client=client, user=user, other_user=other_user, conversation_id=str(uuid.uuid4()))


@pytest.fixture
def ground(client: ContextClient, ground_for: Callable[[ContextClient], Ground]) -> Ground:
    return ground_for(client)


@pytest.fixture
def serve_app() -> Callable[[object], contextlib.AbstractAsyncContextManager[str]]:
    return serve


@pytest.fixture
def container_on() -> Callable[[Path], Starlette]:
    return container
