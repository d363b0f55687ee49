"""The board shows each operation as it stands, cheaply, and never more than the store has promised."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestration_service.errors import OperationUnknown, StoreFull
from orchestration_service.operations import NewOperation, Operation, SqliteOperations, StatusBoard
from workflow_schemas.platform import CompletionResponse, TextItem

pytestmark = pytest.mark.anyio
ANN = "ann@contoso.com"


@pytest.fixture
async def operations(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SqliteOperations]:
    async with SqliteOperations(tmp_path / "o.db") as store:
        yield store


async def running(operations: SqliteOperations, operation_id: str = "op-1") -> Operation:
    new = NewOperation(operation_id=operation_id, instance_id="i", upn=ANN, agent_name="a", fingerprint="f")
    return (await operations.create(new)).operation


def answer(operation_id: str = "op-1", text: str = "Done.") -> CompletionResponse:
    return CompletionResponse(operation_id=operation_id, completion=text, content=[TextItem(value=text)])


def shown(body: bytes | None) -> str:
    assert body is not None
    state: dict[str, Any] = json.loads(body)
    (item,) = state["result"]["content"]
    return f"{state['status']}: {item['value']}"


async def test_an_operation_from_acceptance_to_end(operations: SqliteOperations) -> None:
    async with StatusBoard(operations, instance_id="i") as board:
        board.show(await running(operations))
        seen = [shown(board.glance("op-1", ANN))]
        board.publish("op-1", "Reading")
        board.publish("op-1", "Editing", prompt_tokens=3)
        seen.append(shown(board.glance("op-1", ANN)))
        board.publish("op-1", "  ")
        seen.append(shown(board.glance("op-1", ANN)))
        await board.finish("op-1", "Completed", answer())
        board.publish("op-1", "too late")
        seen.append(shown(board.glance("op-1", ANN)))
    assert seen == [
        "InProgress: Accepted; the turn is about to start.",
        "InProgress: Editing",
        "InProgress: Editing",
        "Completed: Done.",
    ]


async def test_the_end_is_stored_before_it_is_shown(operations: SqliteOperations) -> None:
    """When the store has no room, the board goes on saying InProgress, and the end can be tried again."""
    async with StatusBoard(operations, instance_id="i") as board:
        board.show(await running(operations))
        operations._writer.execute("PRAGMA max_page_count=1")  # what a full disk looks like to SQLite
        with pytest.raises(StoreFull):
            await board.finish("op-1", "Completed", answer(text="x" * 300_000))
        assert shown(board.glance("op-1", ANN)).startswith("InProgress")
        operations._writer.execute("PRAGMA max_page_count=100000")
        await board.finish("op-1", "Completed", answer())
        assert shown(board.glance("op-1", ANN)) == "Completed: Done."


async def test_progress_is_written_behind_at_a_bounded_rate(operations: SqliteOperations) -> None:
    """Ten thousand changes cost one write; the last one arrives, also when the board is left at once."""
    async with StatusBoard(operations, instance_id="i", flush_seconds=0.02) as board:
        board.show(await running(operations))
        for n in range(10_000):
            board.publish("op-1", f"step {n}")
        with anyio.fail_after(5):
            while (found := await operations.get("i", "op-1")) and found.status_message != "step 9999":
                await anyio.sleep(0.01)
        board.publish("op-1", "the last word")
    found = await operations.get("i", "op-1")
    assert found is not None
    assert found.status_message == "the last word"


async def test_progress_that_cannot_be_stored_harms_nothing(operations: SqliteOperations, caplog: pytest.LogCaptureFixture) -> None:
    async with StatusBoard(operations, instance_id="i", flush_seconds=0) as board:
        board.show(await running(operations))
        operations._writer.execute("PRAGMA query_only=ON")
        board.publish("op-1", "still here")
        await anyio.sleep(0.1)
        assert shown(board.glance("op-1", ANN)) == "InProgress: still here"
        operations._writer.execute("PRAGMA query_only=OFF")
    assert "was not stored" in caplog.text


async def test_a_very_long_progress_is_shortened(operations: SqliteOperations) -> None:
    """Every poll carries it and the platform stores it each time."""
    async with StatusBoard(operations, instance_id="i") as board:
        board.show(await running(operations))
        board.publish("op-1", "x" * 1_000_000)
        assert len(board.glance("op-1", ANN) or b"") < 50_000


async def test_only_its_user_sees_it(operations: SqliteOperations) -> None:
    async with StatusBoard(operations, instance_id="i") as board:
        board.show(await running(operations))
        assert board.glance("op-1", ANN.upper())
        assert board.glance("op-1", "bob@contoso.com") is None
        for operation_id, upn in (("op-1", "bob@contoso.com"), ("op-2", ANN)):
            with pytest.raises(OperationUnknown):
                await board.status(operation_id, upn)


async def test_the_least_asked_for_leave_memory_and_are_still_answered(operations: SqliteOperations) -> None:
    async with StatusBoard(operations, instance_id="i", finished_kept=3) as board:
        for n in range(6):
            board.show(await running(operations, f"op-{n}"))
            await board.finish(f"op-{n}", "Completed", answer(f"op-{n}"))
            board.glance("op-0", ANN)
        in_memory = [n for n in range(6) if board.glance(f"op-{n}", ANN)]
        assert in_memory == [0, 4, 5]
        assert [shown(await board.status(f"op-{n}", ANN)) for n in range(6)] == ["Completed: Done."] * 6


async def test_waiting_wakes_at_the_end(operations: SqliteOperations) -> None:
    """Whoever waits is woken within milliseconds, before the operation starts, during it and after it."""
    async with StatusBoard(operations, instance_id="i") as board:
        board.show(await running(operations))
        ended: list[float] = []

        async def wait() -> None:
            operation = await board.wait_finished("op-1", ANN)
            assert operation.status == "Failed"
            ended.append(time.monotonic())

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(wait)
            await anyio.sleep(0.05)
            board.publish("op-1", "half way")
            await anyio.sleep(0.05)
            started = time.monotonic()
            await board.finish("op-1", "Failed", answer())
        await wait()
    assert len(ended) == 21
    assert max(ended) - started < 1


async def test_the_end_in_another_process_is_noticed(tmp_path: Path, operations: SqliteOperations) -> None:
    async with SqliteOperations(tmp_path / "o.db") as elsewhere, StatusBoard(operations, instance_id="i") as board:
        await running(elsewhere)
        async with anyio.create_task_group() as tasks:

            async def finish() -> None:
                await anyio.sleep(0.1)
                await elsewhere.finish("op-1", "Completed", answer())

            tasks.start_soon(finish)
            with anyio.fail_after(5):
                assert (await board.wait_finished("op-1", ANN)).status == "Completed"


async def test_a_taken_over_operation_is_ours(operations: SqliteOperations) -> None:
    """Polled first as somebody else's, then shown as ours: the board is ahead of the store from there on."""
    async with StatusBoard(operations, instance_id="i") as board:
        operation = await running(operations)
        await board.status("op-1", ANN)
        board.show(operation)
        board.publish("op-1", "Taken over")
        assert shown(await board.status("op-1", ANN)) == "InProgress: Taken over"


async def test_an_error_inside_comes_out_as_it_is(operations: SqliteOperations) -> None:
    """The board's task group does not wrap what its user raises; cause and kind stay."""
    with pytest.raises(StoreFull, match="as it is") as raised:
        async with StatusBoard(operations, instance_id="i"):
            raise StoreFull("as it is") from KeyError("cause")
    assert isinstance(raised.value.__cause__, KeyError)


async def test_an_end_stored_earlier_wins(operations: SqliteOperations) -> None:
    """When another process has ended the operation, its end is what the board shows."""
    async with StatusBoard(operations, instance_id="i") as board:
        board.show(await running(operations))
        await operations.finish("op-1", "Completed", answer(text="theirs"))
        await board.finish("op-1", "Failed", answer(text="ours"))
        assert shown(board.glance("op-1", ANN)) == "Completed: theirs"
