"""Status and result show in the platform's State API, in the right order, and its faults stay its own."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

from orchestration_service.operations import NewOperation, OperationStore, SqliteOperations
from orchestration_service.operations.conformance import CHECKS
from orchestration_service.operations.state_api import StateApiSettings, mirrored
from tests.emulators.state_api import KEY, StateApi, serve_state_api
from workflow_schemas.platform import CompletionResponse

pytestmark = pytest.mark.anyio

INSTANCE = "11111111-1111-4111-8111-111111111111"
NEW = NewOperation(operation_id="op", instance_id=INSTANCE, upn="ann@contoso.com", agent_name="a", fingerprint="f")
DONE = CompletionResponse(operation_id="op", completion="Fixed.")


@pytest.fixture
async def state() -> AsyncIterator[StateApi]:
    async with serve_state_api(INSTANCE) as running:
        yield running


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[OperationStore]:
    async with SqliteOperations(tmp_path / "o.db") as opened:
        yield opened


def settings_of(state: StateApi, key: str = KEY) -> StateApiSettings:
    return StateApiSettings(url=state.url, api_key=SecretStr(key), progress_seconds=0.05)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.sleep(0.01)


async def test_the_result_comes_before_the_status_that_promises_it(store: OperationStore, state: StateApi) -> None:
    """Created once, progress as a result, then the final result and only then the status: two log lines in all."""
    async with mirrored(store, settings_of(state), instance_id=INSTANCE) as operations:
        await operations.create(NEW)
        await until(lambda: state.newest_result("op"))
        await operations.save_progress("op", "half way")
        await until(lambda: "half way" in str(state.newest_result("op")))
        await operations.finish("op", "Completed", DONE)
    assert state.calls == ["POST", "POST /result", "POST /result", "POST /result", "PUT"]
    assert [line["status"] for line in state.logs] == ["InProgress", "Completed"]
    assert sorted(state.documents["op"]) == ["op", "op-result"]
    newest = state.newest_result("op")
    assert newest is not None
    assert newest["completion"] == "Fixed."


async def test_an_operation_the_platform_has_created_is_not_created_again(store: OperationStore, state: StateApi) -> None:
    state.documents["op"] = {"op": {"id": "op", "type": "LongRunningOperation", "_ts": 1}}
    async with mirrored(store, settings_of(state), instance_id=INSTANCE) as operations:
        await operations.create(NEW)
        await operations.finish("op", "Completed", DONE)
    assert "POST" not in state.calls
    assert state.calls[-1] == "PUT"


async def test_a_state_api_that_was_away_gets_the_newest_state(store: OperationStore, state: StateApi) -> None:
    """Meanwhile the store works as ever."""
    state.failing_with = 503
    async with mirrored(store, settings_of(state), instance_id=INSTANCE) as operations:
        await operations.create(NEW)
        await anyio.sleep(0.2)
        assert (await operations.finish("op", "Completed", DONE)).status == "Completed"
        state.failing_with = None
        await until(lambda: state.calls[-1:] == ["PUT"])
    assert state.documents["op"]["op"]["status"] == "Completed"


@pytest.mark.parametrize("key", ["wrong"])
async def test_a_state_api_that_refuses_us_harms_nobody(
    store: OperationStore, state: StateApi, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with mirrored(store, settings_of(state, key), instance_id=INSTANCE) as operations:
        await operations.create(NEW)
        await operations.finish("op", "Completed", DONE)
    assert "refuses operation 'op': HTTP 401" in caplog.text
    assert state.documents == {}


async def test_a_take_over_brings_the_mirror_up_to_date(store: OperationStore, state: StateApi) -> None:
    """What was in progress at the start is sent without anybody touching it."""
    await store.create(NEW)
    async with mirrored(store, settings_of(state), instance_id=INSTANCE):
        await until(lambda: state.newest_result("op"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_mirrored_store_is_a_store(store: OperationStore, state: StateApi, check) -> None:  # type: ignore[no-untyped-def]
    async with mirrored(store, settings_of(state), instance_id=INSTANCE) as operations:
        await check(operations)
