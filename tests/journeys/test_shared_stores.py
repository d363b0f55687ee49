"""The whole service on the stores an operator can choose: Cosmos DB and Blob storage for everything, the State API as a mirror."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from pydantic import SecretStr

from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import SCRIPTED_KEY, Platform
from orchestration_service.composition import open_service
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import scripted_endpoint, serve
from orchestration_service.scripted.script import Script
from orchestration_service.settings import load_settings
from tests.emulators.servers import AZURITE_KEY, COSMOS_KEY, Emulator
from tests.emulators.state_api import KEY as STATE_KEY
from tests.emulators.state_api import serve_state_api
from tests.stage import Turn, bash, packed, says

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulators

INSTANCE, KEY = "11111111-2222-3333-4444-555555555555", "a key for the test"
CONVERSATION = "shared"


@asynccontextmanager
async def service(folder: Path, model_url: str, **chosen: Any) -> AsyncIterator[Caller]:
    settings = load_settings(instance_id=INSTANCE, api_key=KEY, data_dir=folder, **chosen)
    routes = ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=model_url)
    async with open_service(settings, routes=routes) as opened, serve(opened.app) as endpoint:
        async with open_caller(Platform(endpoint.base_url, INSTANCE, KEY, opened.sandbox)) as caller:
            yield caller


async def turn(caller: Caller, prompt: str, *, repository: bytes | None = None) -> Turn:
    files = [await caller.upload(CONVERSATION, "repo.tar", repository)] if repository else []
    body = caller.completion(CONVERSATION, prompt, files, model="claude-sonnet-4-5")
    operation_id = await caller.start(body)
    async for _ in caller.events(operation_id):
        pass
    return Turn(operation_id, [await caller.status(operation_id)])


@pytest.fixture
def accounts(cosmos_emulator: Emulator, blob_emulator: Emulator, database_name: str) -> dict[str, Any]:
    return {
        "cosmos_endpoint": cosmos_emulator.url,
        "cosmos_key": COSMOS_KEY,
        "cosmos_database": database_name,
        "blob_endpoint": blob_emulator.url,
        "blob_key": AZURITE_KEY,
        "blob_container": database_name,
        "create_missing_stores": True,
    }


async def test_a_second_replica_answers_for_the_first_and_goes_on(accounts: dict[str, Any], tmp_path: Path) -> None:
    """Nothing but the accounts is shared: each replica has a folder of its own, and sandboxes of its own."""
    steps = [bash("echo harbour > new.txt"), says("One is written."), bash("tr a-z A-Z < new.txt"), says("Two.")]
    model = ScriptedModel(Script(name="shared", steps=steps))
    async with scripted_endpoint(model) as endpoint, service(tmp_path / "a", endpoint.base_url, **accounts) as first:
        began = await turn(first, "Write one.", repository=packed({"r/readme.txt": "hello\n"}))
        assert began.status == "Completed", began.answer
        async with service(tmp_path / "b", endpoint.base_url, **accounts) as second:
            assert await second.status(began.operation_id) == began.state
            patch = await second.context.file_content(second.identity, began.files["patch"]["filepath"])
            assert b"+harbour" in patch.content
            went_on = await turn(second, "Go on.")
    assert (went_on.status, went_on.answer) == ("Completed", "Two."), went_on.answer
    said = str(model.received[-1].body["messages"])
    assert "Write one." in said
    assert "HARBOUR" in said, "the file of the first turn is there"
    assert not await anyio.to_thread.run_sync(lambda: list(tmp_path.rglob("*.sqlite*")))


async def test_the_state_api_shows_what_the_service_says(tmp_path: Path) -> None:
    """Its last result and status are those of the completion."""
    model = ScriptedModel(Script(name="mirrored", steps=[bash("echo x > new.txt"), says("Done.")]))
    async with serve_state_api(INSTANCE) as state, scripted_endpoint(model) as endpoint:
        chosen = {"state_api_url": state.url, "state_api_key": STATE_KEY}
        async with service(tmp_path, endpoint.base_url, **chosen) as caller:
            ended = await turn(caller, "Write.", repository=packed({"r/readme.txt": "hello\n"}))
    assert ended.status == "Completed", ended.answer
    shown = state.newest_result(ended.operation_id)
    assert shown is not None
    assert (shown["completion"], len(shown["content_artifacts"])) == (ended.answer, len(ended.result["content_artifacts"]))
    assert [line["status"] for line in state.logs] == ["InProgress", "Completed"]
