"""Replicas on one SQLite file: a killed owner is replaced, clocks may jump, and the journal stays cheap."""

import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from orchestration_service.errors import LeaseLost
from orchestration_service.operations import Claim, NewOperation, SqliteOperations
from tests.orchestration_service.operations.replica import LEASE_SECONDS

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "o.db"


def new(operation_id: str = "op-1", conversation: str | None = None) -> NewOperation:
    return NewOperation(
        operation_id=operation_id, instance_id="i", upn="ann@contoso.com", conversation_id=conversation, agent_name="a", fingerprint="f"
    )


async def claimed(store: SqliteOperations, operation_id: str = "op-1", owner: str = "one", seconds: float = 30) -> Claim:
    claim = await store.claim(operation_id, owner, seconds)
    assert claim is not None
    return claim


class SteppedClock:
    """A clock that stands still until it is put forward or back."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def put(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@asynccontextmanager
async def replica(task: str, path: Path, owner: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "tests.orchestration_service.operations.replica", task, str(path), owner]
    async with await anyio.open_process(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=None) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def test_a_killed_owner_is_replaced_after_its_lease(path: Path) -> None:
    """While it lives nobody gets its operation; after kill -9 somebody does within a lease, and finds an unbroken log."""
    async with SqliteOperations(path) as store:
        await store.create(new())
        async with replica("hold", path, "other process") as process:
            assert process.stdout is not None
            await process.stdout.receive()
            await anyio.sleep(LEASE_SECONDS * 1.5)
            assert await store.claim("op-1", "us", 30) is None, "the lease was not renewed"
            process.kill()
        with anyio.fail_after(30):
            while (claim := await store.claim("op-1", "us", 30)) is None:
                await anyio.sleep(0.02)
        assert claim.generation == 2
        (event,) = await store.append_events("op-1", [{"type": "text"}], claim)
        assert event.sequence > 3
        assert event.sequence % 3 == 1, "a batch was stored by half"
        events = await store.events("op-1", limit=100_000)
        assert [event.sequence for event in events] == list(range(1, event.sequence + 1))


async def test_processes_share_the_work(path: Path) -> None:
    """Three processes that claim whatever they can end every operation once, each conversation in order."""
    async with SqliteOperations(path) as store:
        for n in range(30):
            await store.create(new(f"op-{n}", conversation=f"c-{n % 4}" if n % 2 else None))
        async with replica("drain", path, "a") as a, replica("drain", path, "b") as b, replica("drain", path, "c") as c:
            with anyio.fail_after(60):
                assert [await process.wait() for process in (a, b, c)] == [0, 0, 0]
        ended = [await store.get("i", f"op-{n}") for n in range(30)]
        assert Counter(operation.status for operation in ended if operation) == {"Completed": 30}
        assert {operation.lease.generation for operation in ended if operation and operation.lease} == {1}
        assert [len(await store.steps(f"op-{n}")) for n in range(30)] == [1] * 30


async def test_a_clock_put_back_prolongs_a_lease_at_most_once_by_its_length(path: Path) -> None:
    clock = SteppedClock()
    async with SqliteOperations(path, clock=clock) as store:
        await store.create(new())
        await claimed(store, seconds=30)
        clock.put(-86_400)
        assert [operation.operation_id for operation in await store.claimable("i")] == ["op-1"]
        assert await store.claim("op-1", "two", 30) is None
        clock.put(29)
        assert await store.claim("op-1", "two", 30) is None
        clock.put(1)
        assert (await claimed(store, owner="two")).generation == 2


async def test_a_clock_put_back_does_no_harm_to_a_living_owner(path: Path) -> None:
    clock = SteppedClock()
    async with SqliteOperations(path, clock=clock) as store:
        await store.create(new())
        claim = await claimed(store)
        clock.put(-86_400)
        claim = await store.renew(claim, 30)
        assert claim.until == clock.now + timedelta(seconds=30)
        await store.record_step("op-1", "open", {}, claim)
        clock.put(29)
        assert await store.claim("op-1", "two", 30) is None


async def test_a_clock_put_forward_costs_a_take_over_and_nothing_else(path: Path) -> None:
    """The lease lapses early; until somebody takes the operation its owner goes on, and afterwards it writes nothing."""
    clock = SteppedClock()
    async with SqliteOperations(path, clock=clock) as store:
        await store.create(new())
        claim = await claimed(store)
        clock.put(86_400)
        await store.record_step("op-1", "open", {}, claim)
        await claimed(store, owner="two")
        with pytest.raises(LeaseLost, match="Stop working on it") as raised:
            await store.record_step("op-1", "run", {}, claim)
        assert (raised.value.operation_id, raised.value.generation) == ("op-1", 1)
        assert [step.step for step in await store.steps("op-1")] == ["open"]


async def test_a_claim_vouches_only_for_its_operation(path: Path) -> None:
    async with SqliteOperations(path) as store:
        await store.create(new())
        await store.create(new("op-2"))
        claim = await claimed(store)
        with pytest.raises(ValueError, match="pass the claim on that operation"):
            await store.record_step("op-2", "open", {}, claim)
        assert await store.steps("op-2") == []


async def test_a_write_that_has_begun_survives_the_cancelling_of_its_task(path: Path) -> None:
    """Whatever moment the task is cancelled at, each batch is stored as a whole or not at all, and the store goes on."""
    async with SqliteOperations(path) as store:
        await store.create(new())
        for n in range(20):
            with anyio.move_on_after(n * 0.0002):
                await store.append_events("op-1", [{"type": "text"}] * 50)
        events = await store.events("op-1", limit=10_000)
        assert len(events) % 50 == 0
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
