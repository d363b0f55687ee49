"""A conversation goes on although its sandbox, and the whole service, are gone."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
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
from tests.stage import packed
from workflow_schemas.receipt import Receipt

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

_INSTANCE, _KEY = "11111111-2222-3333-4444-555555555555", "a key for the test"
_HISTORY = [{"sender": "User", "text": "Write one."}, {"sender": "Agent", "text": "One is written."}]
_FIRST = "echo one > new.txt; git init -q; git add -A; git commit -qm one; mkdir -p 'a b/ü'; chmod 750 'a b'; ln -s /etc/x 'a b/ü/link'"
_LATER = "cat new.txt; git log --format=%s; stat -c '%a %N' 'a b' 'a b/ü/link'; echo more >> new.txt"


def _step(command: str, answer: str) -> list[dict[str, Any]]:
    return [{"tool_use": [{"name": "Bash", "input": {"command": command, "description": "Work"}}]}, {"text": answer}]


@dataclass(frozen=True)
class Ended:
    """A turn that has ended."""

    status: str
    answer: str
    receipt: Receipt | None


@asynccontextmanager
async def _service(folder: Path, model_url: str) -> AsyncIterator[Caller]:
    settings = load_settings(instance_id=_INSTANCE, api_key=_KEY, data_dir=folder)
    routes = ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=model_url)
    async with open_service(settings, routes=routes) as service, serve(service.app) as endpoint:
        async with open_caller(Platform(endpoint.base_url, _INSTANCE, _KEY, service.sandbox)) as caller:
            yield caller


async def _turn(caller: Caller, prompt: str, files: list[FileRecord], **changes: Any) -> Ended:
    body = caller.completion("going-on", prompt, files, model="claude-sonnet-4-5")
    if files == []:
        body["message_history"] = _HISTORY
    body["agent"]["workflow"]["properties"]["claude_code"].update(changes)
    operation = await caller.start(body)
    async for _ in caller.events(operation):
        pass
    state = await caller.status(operation)
    found = [item for item in state["result"]["content_artifacts"] or [] if item["type"] == "WorkflowExecution"]
    receipt = Receipt.model_validate_json(found[0]["metadata"]["receipt"]) if found else None
    return Ended(state["status"], state["result"]["completion"], receipt)


async def test_a_conversation_survives_its_sandbox_and_its_service(tmp_path: Path) -> None:
    """Restored in another sandbox by another service, then continued alive, then lost memory told, then refused."""
    steps = [*_step(_FIRST, "One is written."), *_step(_LATER, "Two."), *_step(_LATER, "Three."), *_step(_LATER, "Four.")]
    model = ScriptedModel(Script.model_validate({"name": "on", "description": "Four turns.", "steps": steps}))
    async with serve(model) as endpoint:
        async with _service(tmp_path, endpoint.base_url) as caller:
            record = await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))
            first = await _turn(caller, "Write one.", [record])
        async with _service(tmp_path, endpoint.base_url) as caller:
            second = await _turn(caller, "Go on.", [])
            third = await _turn(caller, "Go on.", [])
            refused = await _turn(caller, "Go on.", [], sandbox_profile="custom")
    assert first.receipt
    assert second.receipt
    assert third.receipt
    began = [receipt.began for receipt in (first.receipt, second.receipt, third.receipt)]
    assert [(item.workspace, item.from_turn, item.memory) for item in began] == [
        ("fresh", 0, "none"),
        ("restored", 1, "session"),
        ("continued", 2, "session"),
    ]
    assert first.receipt.seal
    assert second.receipt.seal
    assert third.receipt.seal
    assert second.receipt.seal.builds_on == (1,)
    assert second.receipt.seal.new_bytes < first.receipt.seal.new_bytes
    heard = json.dumps(model.received[3].body["messages"], ensure_ascii=False)
    assert "Write one." in heard
    assert "One is written." in heard
    assert "one\\n750 'a b'" in heard.replace("one\\none\\n", "one\\n"), "files, history, modes and names are those of the first turn"
    assert "'a b/ü/link' -> '/etc/x'" in heard
    assert refused.status == "Failed"
    assert "never changes" in refused.answer
    assert len(model.received) == 6, "nothing was executed for the refused turn"


async def test_without_a_seal_the_agent_gets_the_words_and_both_sides_are_told(tmp_path: Path) -> None:
    """With persistence off, the next turn starts with the files anew and the conversation as text."""
    steps = [*_step("echo one > new.txt", "One."), *_step("ls", "Two.")]
    model = ScriptedModel(Script.model_validate({"name": "off", "description": "Two turns.", "steps": steps}))
    async with serve(model) as endpoint, _service(tmp_path, endpoint.base_url) as caller:
        record = await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))
        first = await _turn(caller, "Write one.", [record], workspace_persistence_mode="none")
        second = await _turn(caller, "Go on.", [], workspace_persistence_mode="none")
    assert first.receipt
    assert second.receipt
    assert first.receipt.seal is None
    assert (second.receipt.began.workspace, second.receipt.began.memory) == ("fresh", "history")
    system = json.dumps(model.received[-1].body["system"])
    assert "One is written." in system
    assert "You do not remember these messages yourself" in system


async def test_rewinding_takes_files_and_memory_back_together(tmp_path: Path) -> None:
    """After `/rewind 1` the next turn knows nothing of turn 2; a turn that is not there is refused with those that are."""
    steps = [*_step("echo one > new.txt", "One."), *_step("echo two > new.txt", "Two."), *_step("cat new.txt", "Three.")]
    model = ScriptedModel(Script.model_validate({"name": "back", "description": "There and back.", "steps": steps}))
    async with serve(model) as endpoint, _service(tmp_path, endpoint.base_url) as caller:
        record = await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))
        await _turn(caller, "First words.", [record])
        await _turn(caller, "Second words.", [])
        nowhere = await _turn(caller, "/rewind 7", [])
        back = await _turn(caller, "/rewind 1", [])
        await _turn(caller, "Third words.", [])
    assert nowhere.status == "Failed"
    assert "one of: 1, 2" in nowhere.answer
    assert back.status == "Completed"
    heard = json.dumps(model.received[-1].body["messages"])
    assert "First words." in heard
    assert "Second words." not in heard
