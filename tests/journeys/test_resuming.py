"""A turn stops at each step of its journal, just before or just after it is written, and another one goes on from there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from context_client import ContextClient, UserIdentity
from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes.local import LocalSandboxes
from deployment_templates import fill_template
from orchestration_service.brokers.model import ModelBroker
from orchestration_service.cli.hosting import SCRIPTED_KEY
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.operations import AcceptedTurn, NewOperation, OperationStore, SqliteOperations, StatusBoard
from orchestration_service.pipeline import Pipeline
from orchestration_service.planning import SandboxLimits
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from orchestration_service.sessions import SessionSettings
from tests.journeys.replicas import INSTANCE, KEY, files_of, receipt, stored_files
from tests.stage import bash, says, together
from workflow_schemas.platform import CompletionRequest

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

USER = UserIdentity(name="Ann", user_name="ann@example.com", upn="ann@example.com")
STEPS = (bash("echo one >> log.txt"), bash("echo two >> log.txt; echo report > /outputs/report.txt"), says("Two lines."))
POINTS = ("record_step open", "record_step run", "record_step collect", "begin_effect collect", "end_effect collect", "record_step answer")
CASES = tuple(f"{when} {point}" for point in (*POINTS, "save_conversation", "finish") for when in ("before", "after"))


class Dying:
    """A store whose user is gone at one of its writes."""

    def __init__(self, store: SqliteOperations, case: str) -> None:
        self._store = store
        self._when, self._method, *self._words = case.split()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._method:
            return method

        async def dying(*given: Any, **more: Any) -> Any:
            if self._words and self._words[0] not in given:
                return await method(*given, **more)
            if self._when == "after":
                await method(*given, **more)
            raise asyncio.CancelledError

        return dying


@dataclass
class Ground:
    store: SqliteOperations
    client: ContextClient
    broker: ModelBroker
    models_url: str
    model: ScriptedModel
    folder: Path

    def pipeline(self, store: OperationStore) -> Pipeline:
        board = StatusBoard(store, instance_id=INSTANCE)
        routes = ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=self.models_url)
        return Pipeline(
            context=self.client,
            store=store,
            board=board,
            broker=self.broker,
            routes=routes,
            session=SessionSettings(),
            limits=SandboxLimits(),
        )

    async def accepted(self, name: str) -> AcceptedTurn:
        values = {"instanceId": INSTANCE, "operationId": name, "conversationId": name, "prompt": "Write.", "model": "claude-sonnet-4-5"}
        request = CompletionRequest.model_validate(fill_template("embedded/completion.json", values))
        about = {"conversation_id": name, "agent_name": "claude-code", "fingerprint": "f"}
        created = await self.store.create(NewOperation(operation_id=name, instance_id=INSTANCE, upn=USER.upn, **about))
        return AcceptedTurn(operation=created.operation, request=request, identity=USER, identity_header=USER.to_header())


@asynccontextmanager
async def ground(folder: Path) -> AsyncIterator[Ground]:
    model = ScriptedModel(Script(name="two", steps=STEPS), keep_requests=1000)
    embedded = EmbeddedSettings(folder=folder / "context", instance_id=INSTANCE, api_key=SecretStr(KEY))
    async with (
        serve(model) as models,
        LocalSandboxes() as sandboxes,
        open_app(embedded, providers={DEFAULT_PROVIDER_NAME: sandboxes}) as app,
        serve(app) as context,
        ContextClient(base_url=context.base_url, api_key=KEY, instance_id=INSTANCE) as client,
        SqliteOperations(folder / "operations.sqlite") as store,
        ModelBroker() as broker,
    ):
        yield Ground(store, client, broker, models.base_url, model, folder)


async def interrupted(play: Ground, case: str) -> dict[str, Any]:
    """Play a turn that stops in the middle, then the rest of it; return the answer with what is known besides."""
    name = case.replace(" ", "-").replace("_", "-")
    turn = await play.accepted(name)
    claim = await play.store.claim(name, "first", 600)
    assert claim is not None
    with pytest.raises(asyncio.CancelledError):
        await play.pipeline(Dying(play.store, case)).run(turn, claim)
    await play.store.release(claim)
    second = await play.store.claim(name, "second", 600)
    if second is not None:  # else the end was written
        assert not await play.pipeline(play.store).run(turn, second, resumed=True)
    ended = await play.store.get(INSTANCE, name)
    assert ended is not None
    assert ended.result is not None
    conversation = await play.store.conversation(INSTANCE, USER.upn, name)
    assert conversation is not None
    events = [one.event for one in await play.store.events(name)]
    return {"status": ended.status, "result": ended.result.model_dump(mode="json"), "turns": conversation.turns, "events": events}


@pytest.fixture(scope="module")
async def played(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Ground, dict[str, dict[str, Any]]]]:
    async with ground(tmp_path_factory.mktemp("resuming")) as play:
        yield play, await together(CASES, lambda case: interrupted(play, case), at_once=3)


@pytest.mark.parametrize("case", CASES)
async def test_the_turn_ends_well_and_only_once(played: tuple[Ground, dict[str, dict[str, Any]]], case: str) -> None:
    state = played[1][case]
    assert (state["status"], state["result"]["completion"]) == ("Completed", "Two lines.")
    assert [turn.turn_number for turn in state["turns"]] == [1]
    assert state["turns"][0].seal_sha256 is not None
    assert receipt(state).usage.model_calls == 3
    tools = [event["id"] for event in state["events"] if event["type"] == "tool_start"]
    assert len(tools) == len(set(tools)) == 2
    assert [event["type"] for event in state["events"]].count("model_call") == 3
    told = {item["filepath"] for item in files_of(state).values()}
    assert stored_files(played[0].folder, state["turns"][0].operation_id) == told, "no record is doubled, and none is missing"


async def test_no_call_of_the_model_was_made_twice(played: tuple[Ground, dict[str, dict[str, Any]]]) -> None:
    calls = [request for request in played[0].model.received if "count_tokens" not in request.path]
    assert len(calls) == 3 * len(CASES)
