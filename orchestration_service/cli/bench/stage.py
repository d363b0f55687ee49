"""What the measurements share: a platform with a scripted model, the demo repository, and the bare CLI to compare with."""

import asyncio
import importlib.util
import os
import shutil
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from pydantic import SecretStr
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from context_client import FileRecord
from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import SCRIPTED_KEY, hosted_platform, quick_to_answer
from orchestration_service.cli.repository import pack
from orchestration_service.errors import ServiceError
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.demo_repository import create_demo_repository
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script

PROMPT = "Fix the failing test."
WARM_SECONDS = 2.5
TOOLS = "Read,Write,Edit,Bash,Grep,Glob"


@dataclass
class Ear:
    """Notes when model requests arrive, and their bytes, on their way to the scripted model."""

    app: ASGIApp
    arrivals: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.arrivals.append(time.monotonic())
        pieces: list[bytes] = []

        async def listening() -> Message:
            message = await receive()
            pieces.append(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body"):
                self.bodies.append(b"".join(pieces))
            return message

        await self.app(scope, listening, send)


@dataclass(frozen=True)
class Stage:
    """Everything a measurement needs."""

    caller: Caller
    ear: Ear
    model_url: str
    folder: Path
    packed: bytes

    async def conversation(self, *, warm: bool) -> tuple[str, FileRecord]:
        """Begin a conversation with the repository attached; a warm one has a sandbox that is ready."""
        conversation = f"bench-{uuid.uuid4()}"
        record = await self.caller.upload(conversation, "repository.tar", self.packed)
        if warm:
            session = await self.session(conversation)
            await self.caller.context.execute_code(self.caller.identity, session, "pass")
            await asyncio.sleep(WARM_SECONDS)
        return conversation, record

    async def session(self, conversation: str) -> str:
        """Open the conversation's code session as the service does."""
        opened = await self.caller.context.create_code_session(
            self.caller.identity,
            agent_name="claude-code",
            conversation_id=conversation,
            context="claude-code",
            endpoint_provider="AzureContainerAppsCustomContainer",
        )
        return opened.session_id

    async def turn(self, conversation: str, record: FileRecord) -> tuple[float, dict[str, Any]]:
        """Run one turn and return its seconds from the request to the result, and the result."""
        since = time.monotonic()
        operation = await self.caller.start(self.caller.completion(conversation, PROMPT, [record], model="claude-sonnet-4-5"))
        async for _ in self.caller.events(operation):
            pass
        state = await self.caller.status(operation)
        if state["status"] != "Completed":
            raise ServiceError(f"a measured turn failed: {state['result']['completion']}")
        return time.monotonic() - since, state["result"]


@asynccontextmanager
async def open_stage(script: Script, *, far_model: bool = False, **chosen: Any) -> AsyncIterator[Stage]:
    """Put the platform, the scripted model and the repository up.

    Args:
        script: What the model plays.
        far_model: Whether the model has a process of its own; then nothing hears its requests.
        chosen: Settings of the platform, such as where its sandboxes are.
    """
    with TemporaryDirectory(prefix="claude-code-bench-") as name:
        folder = Path(name)
        made = await asyncio.to_thread(create_demo_repository, folder / "pricing")
        ear = Ear(ScriptedModel(script))
        async with _far(script, folder) if far_model else _near(ear) as model_url:
            routes = ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=model_url)
            async with hosted_platform(folder / "data", routes=routes, **chosen) as platform, open_caller(platform) as caller:
                packed = await asyncio.to_thread(pack, made.path)
                with quick_to_answer():  # as `./dev serve` is
                    yield Stage(caller, ear, model_url, folder, packed)


@asynccontextmanager
async def _near(ear: Ear) -> AsyncIterator[str]:
    async with serve(ear) as model:
        yield model.base_url


@asynccontextmanager
async def _far(script: Script, folder: Path) -> AsyncIterator[str]:
    path = folder / "script.json"
    await anyio.Path(path).write_text(script.model_dump_json(), encoding="utf-8")
    line = [sys.executable, "-m", "orchestration_service.scripted", str(path)]
    process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
    if process.stdout is None:
        raise ServiceError("the scripted model's output is not read")
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def bare_cli(script: Script, repository: Path, folder: Path) -> tuple[float, float]:
    """Run the script with the bare CLI in a plain directory; return seconds in all and seconds to the first model request."""
    await asyncio.to_thread(shutil.copytree, repository, folder / "workspace", symlinks=True)
    ear = Ear(ScriptedModel(script.filled({"workspace": str(folder / "workspace")})))
    async with serve(ear) as model:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ANTHROPIC_BASE_URL": model.base_url,
            "ANTHROPIC_API_KEY": SCRIPTED_KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
            "IS_SANDBOX": "1",
        }
        line = [str(_cli()), "-p", PROMPT, "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"]
        line += ["--tools", TOOLS, "--permission-mode", "bypassPermissions", "--setting-sources", "", "--strict-mcp-config"]
        since = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *line, cwd=folder / "workspace", env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        await process.communicate()
        seconds = time.monotonic() - since
        if process.returncode != 0 or not ear.arrivals:
            raise ServiceError(f"the bare CLI failed with {process.returncode}")
        return seconds, ear.arrivals[0] - since


def _cli() -> Path:
    """Return the CLI that the agent SDK bundles, without importing the SDK."""
    found = importlib.util.find_spec("claude_agent_sdk")
    if found is None or not found.submodule_search_locations:
        raise ServiceError("the package claude-agent-sdk is not installed, so there is no CLI to compare with; run ./dev setup")
    return Path(found.submodule_search_locations[0]) / "_bundled" / "claude"
