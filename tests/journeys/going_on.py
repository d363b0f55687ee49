"""One conversation after another with a service that can be taken away, for the journeys about going on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from context_client import FileRecord
from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import SCRIPTED_KEY, Platform
from orchestration_service.composition import open_service
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from orchestration_service.settings import load_settings
from workflow_schemas.receipt import Receipt

INSTANCE, KEY = "11111111-2222-3333-4444-555555555555", "a key for the test"
HISTORY = [{"sender": "User", "text": "Write one."}, {"sender": "Agent", "text": "One is written."}]


def step(command: str, answer: str) -> list[dict[str, Any]]:
    """What the model does in a turn: one command, one answer."""
    return [{"tool_use": [{"name": "Bash", "input": {"command": command, "description": "Work"}}]}, {"text": answer}]


def scripted(*turns: list[dict[str, Any]]) -> ScriptedModel:
    """A model that plays these turns one after another."""
    steps = [one for turn in turns for one in turn]
    return ScriptedModel(Script.model_validate({"name": "on", "description": "Several turns.", "steps": steps}))


@dataclass(frozen=True)
class Ended:
    """A turn that has ended."""

    status: str
    answer: str
    receipt: Receipt | None

    @property
    def told(self) -> Receipt:
        """The receipt of a turn that must have one."""
        assert self.receipt, self.answer
        return self.receipt


@asynccontextmanager
async def service(folder: Path, model_url: str, upn: str = "demo.user@example.com", **chosen: Any) -> AsyncIterator[Caller]:
    """The service on a data folder, and a caller."""
    settings = load_settings(instance_id=INSTANCE, api_key=KEY, data_dir=folder, **chosen)
    routes = ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=model_url)
    async with open_service(settings, routes=routes) as opened, serve(opened.app) as endpoint:
        async with open_caller(Platform(endpoint.base_url, INSTANCE, KEY, opened.sandbox), upn) as caller:
            yield caller


async def say(caller: Caller, prompt: str, files: list[FileRecord], conversation: str = "going-on", **changes: Any) -> Ended:
    """Say something in a conversation and wait for the end of the turn."""
    body = caller.completion(conversation, prompt, files, model="claude-sonnet-4-5")
    if files == []:
        body["message_history"] = HISTORY
    body["agent"]["workflow"]["properties"]["claude_code"].update(changes)
    operation = await caller.start(body)
    async for _ in caller.events(operation):
        pass
    state = await caller.status(operation)
    found = [item for item in state["result"]["content_artifacts"] or [] if item["type"] == "WorkflowExecution"]
    receipt = Receipt.model_validate_json(found[0]["metadata"]["receipt"]) if found else None
    return Ended(state["status"], state["result"]["completion"], receipt)


__all__ = ["HISTORY", "Caller", "Ended", "say", "scripted", "serve", "service", "step"]
