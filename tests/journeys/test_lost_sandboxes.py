"""A sandbox that is lost in the middle of a turn: what the service has is kept, and what comes late is not thrown away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from context_client import ContextClient, UserIdentity
from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes.local import LocalSandboxes
from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import SCRIPTED_KEY, Platform
from orchestration_service.composition import open_service
from orchestration_service.keeper import Pace
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Rule, Script
from orchestration_service.settings import load_settings
from tests.journeys.replicas import files_of, receipt
from tests.stage import bash, says

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

INSTANCE, KEY = "11111111-2222-3333-4444-555555555555", "a-key-for-the-test"
STEPS = (bash("echo one > one.txt"), bash("sleep 3; echo two > two.txt", delay_seconds=0.2), says("Both are written."))
TWO = Script(name="two", steps=STEPS)


@dataclass
class Road:
    """A TCP proxy that can be closed: those who are on it are thrown off, and nobody else gets on."""

    target: tuple[str, int]
    is_closed: bool = False
    travellers: set[asyncio.Task[None]] = field(default_factory=set)

    def close(self) -> None:
        self.is_closed = True
        for traveller in self.travellers:
            traveller.cancel()

    async def travel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.travellers.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            if not self.is_closed:
                back, there = await asyncio.open_connection(*self.target)
                await asyncio.gather(_pour(reader, there), _pour(back, writer))
        except (OSError, asyncio.CancelledError):
            pass  # thrown off
        finally:
            self.travellers.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    with suppress(OSError):
        target.write_eof()


@dataclass
class Scene:
    """A service whose Context API is on the other end of a road."""

    caller: Caller
    model: ScriptedModel
    road: Road

    async def ended(self, operation: str) -> dict[str, Any]:
        return await self.until(operation, lambda state: state["status"] != "InProgress")

    async def until(self, operation: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not holds(state := await self.caller.status(operation)):
            await asyncio.sleep(0.05)
        return state


@asynccontextmanager
async def scene(folder: Path, pace: Pace, script: Script = TWO) -> AsyncIterator[Scene]:
    model = ScriptedModel(script)
    embedded = EmbeddedSettings(folder=folder / "context", instance_id=INSTANCE, api_key=SecretStr(KEY))
    user = UserIdentity(name="Ann", user_name="ann@example.com", upn="ann@example.com")
    async with (
        serve(model) as models,
        LocalSandboxes() as sandboxes,
        open_app(embedded, providers={DEFAULT_PROVIDER_NAME: sandboxes}) as app,
        serve(app) as context,
        ContextClient(base_url=context.base_url, api_key=KEY, instance_id=INSTANCE) as client,
    ):
        road = Road(("127.0.0.1", int(context.base_url.rsplit(":", 1)[1])))
        async with await asyncio.start_server(road.travel, "127.0.0.1", 0) as proxy:
            url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            settings = load_settings(instance_id=INSTANCE, api_key=KEY, data_dir=folder, context_url=url, context_api_key=KEY)
            routes = ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=models.base_url)
            async with open_service(settings, routes=routes, pace=pace) as service, serve(service.app) as served:
                async with open_caller(Platform(served.base_url, INSTANCE, KEY, ""), user.upn) as caller:
                    yield Scene(Caller(caller.http, client, user, INSTANCE), model, road)


async def test_a_result_that_comes_late_takes_the_place_of_the_failure(tmp_path: Path) -> None:
    """The way to the sandbox is cut and the turn given up; the agent's work is sealed there, and found when the way is open again."""
    async with scene(tmp_path, Pace(patience=1.0, late=(1.0, 4.0, 8.0, 12.0, 20.0, 30.0))) as play:
        operation = await play.caller.start(play.caller.completion("c", "Write.", [], model="claude-sonnet-4-5"))
        while len(play.model.received) < 2:
            await asyncio.sleep(0.05)
        play.road.close()
        failed = await play.ended(operation)
        assert failed["status"] == "Failed"
        assert receipt(failed).end_reason == "sandbox_lost"
        play.road.is_closed = False
        late = await play.until(operation, lambda state: bool(state["status"] == "Completed"))
    told = receipt(late)
    assert told.seal is not None
    assert any("came late" in remark for remark in told.remarks)
    assert told.patch_proven
    assert "turn-001-workspace.tar" in files_of(late)


async def test_the_next_message_takes_the_sandbox_of_a_turn_that_was_given_up(tmp_path: Path) -> None:
    """The earlier agent still works there when the way is open again; it is ended, and the next turn has the sandbox for itself."""
    rule = Rule(pattern="Write now", steps=(bash("sleep 2"), says("Written.")))
    script = Script(name="long", steps=(bash("sleep 100"), says("Never.")), rules=(rule,))
    async with scene(tmp_path, Pace(patience=1.0, late=(60.0,)), script) as play:
        first = await play.caller.start(play.caller.completion("c", "Write.", [], model="claude-sonnet-4-5"))
        while not play.model.received:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        play.road.close()
        assert (await play.ended(first))["status"] == "Failed"
        play.road.is_closed = False
        second = await play.caller.start(play.caller.completion("c", "Write now.", [], model="claude-sonnet-4-5"))
        ended = await play.ended(second)
    assert (ended["status"], ended["result"]["completion"].splitlines()[0]) == ("Completed", "Written.")


async def content(caller: Caller, artifact: dict[str, Any]) -> bytes:
    return (await caller.context.file_content(caller.identity, artifact["filepath"])).content


@asynccontextmanager
async def embedded(folder: Path, model_url: str) -> AsyncIterator[Caller]:
    settings = load_settings(instance_id=INSTANCE, api_key=KEY, data_dir=folder)
    routes = ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=model_url)
    async with open_service(settings, routes=routes, pace=Pace(look=0.3)) as service, serve(service.app) as endpoint:
        async with open_caller(Platform(endpoint.base_url, INSTANCE, KEY, service.sandbox)) as caller:
            yield caller


async def test_when_the_sandbox_went_with_the_service_its_user_keeps_what_was_said(tmp_path: Path) -> None:
    """Everything in one process: after its restart the turn ends, with the log, the events and the transcript as files, each once."""
    model = ScriptedModel(Script(name="two", steps=STEPS))
    async with serve(model) as models:
        async with embedded(tmp_path, models.base_url) as caller:
            operation = await caller.start(caller.completion("c", "Write.", [], model="claude-sonnet-4-5"))
            while len(model.received) < 2:
                await asyncio.sleep(0.05)
        async with embedded(tmp_path, models.base_url) as caller:
            while (state := await caller.status(operation))["status"] == "InProgress":
                await asyncio.sleep(0.05)
            files = files_of(state)
            contents = {name: await content(caller, item) for name, item in files.items()}
            again = await caller.start(caller.completion("c", "Write.", [], model="claude-sonnet-4-5"))
            while (next_turn := await caller.status(again))["status"] == "InProgress":
                await asyncio.sleep(0.05)
    assert state["status"] == "Failed"
    assert "replaced" in state["result"]["completion"]
    names = [f"turn-001-{name}" for name in ("events.jsonl", "log.txt", "conversation.json", "manifest.json")]
    assert sorted(files) == sorted(names)
    assert {item["metadata"]["integrity"] for item in files.values()} == {"exact"}
    assert "the workspace of this turn: the sandbox is gone" in receipt(state).lost
    assert "echo one > one.txt" in json.dumps(json.loads(contents[names[2]])["messages"])
    assert b"Bash echo one" in contents[names[1]]
    events = [json.loads(line) for line in contents[names[0]].splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert next_turn["status"] == "Completed"
