"""The whole product on one machine, for tests: the embedded platform on a socket, users that call it, models that play scripts.

Nothing here stands in for a part of the product. A test gives the model's lines; the service, the sandbox and the agent's CLI are real.
"""

import io
import json
import tarfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import Mount

from context_client import FileRecord
from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import Platform
from orchestration_service.composition import open_service
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.planning import SandboxLimits
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script, Step, ToolUse
from orchestration_service.settings import load_settings
from workflow_schemas.receipt import Receipt

MODEL_KEY = "sk-ant-journey-5d1f0c7e9b3a-never-inside"
"""The key the service calls models with; no test may ever meet it inside a sandbox."""

Result = TypeVar("Result")

_POLL_SECONDS = 0.02


def says(text: str, **more: Any) -> Step:
    """A step in which the model says something and is done."""
    return Step(text=text, **more)


def calls(*tools: tuple[str, dict[str, Any]], text: str | None = None, **more: Any) -> Step:
    """A step in which the model asks for tools."""
    return Step(text=text, tool_use=tuple(ToolUse(name=name, input=arguments) for name, arguments in tools), **more)


def bash(command: str, **more: Any) -> Step:
    """A step in which the model runs a shell command."""
    return calls(("Bash", {"command": command, "description": "Look around"}), **more)


@dataclass
class Turn:
    """A completion that has ended, as its caller knows it."""

    operation_id: str
    polls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def state(self) -> dict[str, Any]:
        """The last answer to a poll."""
        return self.polls[-1]

    @property
    def status(self) -> str:
        return str(self.state["status"])

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = self.state["result"]
        return found

    @property
    def answer(self) -> str:
        return str(self.result["completion"])

    def artifacts(self, kind: str) -> list[dict[str, Any]]:
        return [artifact for artifact in self.result["content_artifacts"] if artifact["type"] == kind]

    @property
    def receipt(self) -> Receipt:
        return Receipt.model_validate_json(self.artifacts("WorkflowExecution")[0]["metadata"]["receipt"])

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """The file artifacts by the role of the file; those of the agent by their name."""
        found = {}
        for artifact in self.artifacts("File"):
            role = artifact["metadata"]["role"]
            found[artifact["metadata"]["original_file_name"] if role == "output" else role] = artifact
        return found


@dataclass
class Stage:
    """A running platform with one user in front of it."""

    platform: Platform
    caller: Caller
    models_url: str
    _models: Starlette

    def model(self, *steps: Step, **script: Any) -> "Casting":
        """Serve a model that plays these steps."""
        name = f"model-{uuid.uuid4().hex[:8]}"
        played = ScriptedModel(Script(name=name, steps=steps, **script), expected_key=SecretStr(MODEL_KEY))
        self._models.router.routes.append(Mount(f"/{name}", played))
        return Casting(self, f"{self.models_url}/{name}", played)

    async def finished(self, operation_id: str) -> Turn:
        """Poll an operation as a portal does until it has ended; answers that repeat are kept once."""
        turn = Turn(operation_id)
        while True:
            state = await self.caller.status(operation_id)
            if not turn.polls or _seen(state) != _seen(turn.state):
                turn.polls.append(state)
            if state["status"] != "InProgress":
                return turn
            await anyio.sleep(_POLL_SECONDS)

    async def content(self, artifact: dict[str, Any]) -> bytes:
        """Fetch the stored bytes behind a file artifact."""
        return (await self.caller.context.file_content(self.caller.identity, artifact["filepath"])).content

    async def archive(self, turn: Turn) -> dict[str, bytes]:
        """Fetch the regular files of a turn's workspace archive by their names."""
        return members(await self.content(turn.files["workspace"]))


@dataclass
class Casting:
    """A model on the stage."""

    stage: Stage
    url: str
    played: ScriptedModel

    def completion(
        self, prompt: str, files: Sequence[FileRecord] = (), *, conversation: str | None = None, **properties: Any
    ) -> dict[str, Any]:
        """Build a completion that uses this model.

        Args:
            prompt: What the user writes.
            files: What the user attaches.
            conversation: Which conversation it belongs to; a new one by default.
            properties: Settings of the workflow.
        """
        body = self.stage.caller.completion(conversation or f"c-{uuid.uuid4()}", prompt, list(files), model="scripted-model")
        endpoint = next(resource for name, resource in body["objects"].items() if "apiEndpointConfigurations" in name)
        endpoint["url"] = self.url
        body["agent"]["workflow"]["properties"]["claude_code"].update(properties)
        return body

    async def turn(self, prompt: str, files: Sequence[FileRecord] = (), **more: Any) -> Turn:
        """Play one whole turn."""
        return await self.stage.finished(await self.stage.caller.start(self.completion(prompt, files, **more)))

    def prompts(self, request: int) -> str:
        """The messages of a recorded request, as JSON."""
        return json.dumps(self.played.received[request].body["messages"])


@asynccontextmanager
async def open_stage(
    folder: Path, *, limits: SandboxLimits | None = None, upn: str = "ann@example.com", **chosen: Any
) -> AsyncIterator[Stage]:
    """Start the platform and a place for models.

    Args:
        folder: Where the platform keeps its data.
        limits: What a turn is granted.
        upn: The user.
        chosen: Further settings, such as where sandboxes are.
    """
    settings = load_settings(**{"instance_id": str(uuid.uuid4()), "api_key": "stage-platform-key-0001", "data_dir": folder, **chosen})
    models = Starlette()
    routes = ModelRoutes(default_key=SecretStr(MODEL_KEY))
    async with (
        serve(models) as endpoint,
        open_service(settings, routes=routes, limits=limits) as service,
        serve(service.app) as served,
    ):
        platform = Platform(served.base_url, settings.instance_id, settings.api_key.get_secret_value(), service.sandbox)
        async with open_caller(platform, upn) as caller:
            yield Stage(platform, caller, endpoint.base_url, models)


async def together(names: Iterable[str], play: Callable[[str], Awaitable[Result]], *, at_once: int = 4) -> dict[str, Result]:
    """Play something for each name, some at a time: turns mostly wait, and a test of each is waiting for all."""
    results: dict[str, Result] = {}
    some = anyio.CapacityLimiter(at_once)

    async def one(name: str) -> None:
        async with some:
            results[name] = await play(name)

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(one, name)
    return results


def packed(files: Mapping[str, bytes | str]) -> bytes:
    """Return a tar of some files."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


def members(archive: bytes) -> dict[str, bytes]:
    """Return the regular files of a tar by their names."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {item.name: content.read() for item in opened if item.isreg() and (content := opened.extractfile(item)) is not None}


def _seen(state: dict[str, Any]) -> str:
    """What a person sees of a poll: all but the line with the seconds, which changes without news."""
    shown = json.loads(json.dumps(state))
    shown.pop("last_updated", None)
    if state["status"] == "InProgress":
        shown["status_message"] = ""
        for item in shown["result"]["content"]:
            item["value"] = without_figures(item["value"])
        shown["result"]["completion"] = ""
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            shown.pop(name, None)
            shown["result"].pop(name, None)
    return json.dumps(shown, sort_keys=True)


def without_figures(text: str) -> str:
    """Return a progress text without its last line of elapsed time and tokens."""
    lines = text.rstrip().splitlines()
    if lines and lines[-1].startswith("_") and lines[-1].endswith("tokens_"):
        lines = lines[:-1]
    return "\n".join(lines).rstrip()
