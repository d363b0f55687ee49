"""The SQLite store keeps what the port promises, also on a full disk, a locked file and no file at all."""

import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestration_service.errors import StoreBusy, StoreError, StoreFull, StoreUnusable
from orchestration_service.operations import NewOperation, SqliteOperations
from orchestration_service.operations.conformance import CHECKS, REPLICA_CHECKS
from orchestration_service.operations.orphans import end_interrupted
from orchestration_service.operations.sqlite_schema import STEPS_BY_VERSION
from workflow_schemas.platform import CompletionResponse

pytestmark = pytest.mark.anyio


@pytest.fixture
async def operations(tmp_path: Path) -> AsyncIterator[SqliteOperations]:
    async with SqliteOperations(tmp_path / "data" / "operations.db") as store:
        yield store


def new(operation_id: str = "op-1", size: int = 0) -> NewOperation:
    filler = os.urandom(size)  # does not compress, so it takes the space it seems to take
    return NewOperation(operation_id=operation_id, instance_id="i", upn="ann@contoso.com", agent_name="a", fingerprint="f", request=filler)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conformance(operations: SqliteOperations, check) -> None:  # type: ignore[no-untyped-def]
    await check(operations)


@pytest.mark.parametrize("check", REPLICA_CHECKS, ids=lambda check: check.__name__)
async def test_conformance_of_replicas(operations: SqliteOperations, check) -> None:  # type: ignore[no-untyped-def]
    async with SqliteOperations(operations.path) as elsewhere:
        await check(operations, elsewhere)


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """A second store on the same file finds the first one's operation, journal and events."""
    async with SqliteOperations(tmp_path / "o.db") as first:
        created = await first.create(new())
        await first.record_step("op-1", "open", {"a": 1})
        await first.append_events("op-1", [{"type": "text"}])
    async with SqliteOperations(tmp_path / "o.db") as second:
        found = await second.get("i", "op-1")
        assert found is not None
        assert found.fingerprint == created.operation.fingerprint
        assert [s.step for s in await second.steps("op-1")] == ["open"]
        assert len(await second.events("op-1")) == 1


async def test_a_file_of_the_first_version_is_carried_over(tmp_path: Path) -> None:
    """What an earlier service accepted is there, unclaimed, and counts among the conversation's turns."""
    with sqlite3.connect(tmp_path / "o.db") as db:
        for statement in (*STEPS_BY_VERSION[0], "PRAGMA user_version=1"):
            db.execute(statement)
        db.execute(
            "INSERT INTO operations VALUES ('op-1', 'i', 'Ann@contoso.com', 'ann@contoso.com', 'c', 'a', 1, 'InProgress', 'Working.', 0, 0,"
            " NULL, 'f', '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00', 'open')"
        )
    db.close()
    async with SqliteOperations(tmp_path / "o.db") as store:
        found = await store.get("i", "op-1")
        assert found is not None
        assert (found.last_step, found.lease) == ("open", None)
        later = await store.create(new("op-2").model_copy(update={"conversation_id": "c"}))
        assert later.operation.turn_number == 2
        assert await store.claim("op-1", "one", 30) is not None


async def test_a_full_store_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    """When no space is left, the write is refused as a whole, earlier operations stay, and small writes still pass."""
    async with SqliteOperations(tmp_path / "o.db", limit_bytes=200_000) as store:
        await store.create(new("small"))
        with pytest.raises(StoreFull, match="Free space"):
            await store.create(new("large", size=400_000))
        assert await store.get("i", "large") is None
        assert await store.get("i", "small") is not None
        await store.finish("small", "Completed", CompletionResponse(operation_id="small", completion="fine"))


async def test_two_processes_share_one_file(tmp_path: Path) -> None:
    """Two stores on one file see each other's operations and agree on who was first."""
    async with SqliteOperations(tmp_path / "o.db") as one, SqliteOperations(tmp_path / "o.db") as two:
        assert (await one.create(new())).is_new
        assert not (await two.create(new())).is_new


async def test_a_lock_held_for_too_long_is_named(tmp_path: Path) -> None:
    async with SqliteOperations(tmp_path / "o.db", busy_seconds=0.05) as store:
        other = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="one service per data folder"):
            await store.create(new())
        other.execute("ROLLBACK")
        other.close()
        assert (await store.create(new())).is_new


async def test_the_file_is_its_owners_only(operations: SqliteOperations) -> None:
    await operations.create(new())
    for path in operations.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def make_garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, whatever the name says" * 40)


def make_newer(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [(make_garbage, "no SQLite file"), (make_newer, "newer version"), (make_folder, "cannot be opened")],
    ids=["garbage", "newer", "folder"],
)
async def test_an_unusable_file_is_refused_with_a_reason(tmp_path: Path, prepare, words: str) -> None:  # type: ignore[no-untyped-def]
    prepare(tmp_path / "o.db")
    with pytest.raises(StoreUnusable, match=words) as raised:
        async with SqliteOperations(tmp_path / "o.db"):
            pass
    assert isinstance(raised.value, StoreError)
    assert raised.value.path == tmp_path / "o.db"


async def test_an_orphan_gets_an_end_a_person_can_read(operations: SqliteOperations) -> None:
    """What nobody can go on with becomes Failed with a result, and not under an outdated claim."""
    await operations.create(new("left"))
    outdated = await operations.claim("left", "one", 30)
    assert outdated
    await operations.release(outdated)
    claim = await operations.claim("left", "two", 30)
    left = await operations.get("i", "left")
    assert claim
    assert left
    assert await end_interrupted(operations, left, outdated) is None
    settled = await end_interrupted(operations, left, claim)
    assert settled
    assert (settled.operation_id, settled.status) == ("left", "Failed")
    assert settled.result is not None
    assert "send the message again" in settled.result.completion
    assert await operations.unfinished("i") == []
