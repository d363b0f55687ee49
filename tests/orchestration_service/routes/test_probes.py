"""What a cluster asks of a replica, over a real socket."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from orchestration_service.errors import StoreBusy
from orchestration_service.keeper import Load
from orchestration_service.operations import SqliteOperations
from orchestration_service.operations.conformance_samples import INSTANCE, new_operation
from orchestration_service.operations.model import Operation
from orchestration_service.routes.probes import METRICS_TYPE, probe_app
from orchestration_service.scripted.endpoint import serve
from orchestration_service.vitals import Vitals

pytestmark = pytest.mark.anyio


class Failing(SqliteOperations):
    """A store as it is while its account throttles or says nothing."""

    silent = False

    async def unfinished(self, instance_id: str) -> list[Operation]:
        if self.silent:
            await asyncio.sleep(60)
        raise StoreBusy("The account is throttled.")


@asynccontextmanager
async def probed(store: SqliteOperations) -> AsyncIterator[tuple[Vitals, httpx.AsyncClient]]:
    vitals = Vitals(store, load=lambda: Load(running=2, waiting=1), instance_id=INSTANCE, patience_seconds=0.1)
    async with serve(probe_app(vitals)) as endpoint, httpx.AsyncClient(base_url=endpoint.base_url) as client:
        yield vitals, client


async def test_a_replica_is_ready_only_between_its_start_and_its_end(tmp_path: Path) -> None:
    """It is alive all the while: who drains must not be killed for it."""
    seen = []
    async with SqliteOperations(tmp_path / "o.sqlite") as store, probed(store) as (vitals, client):
        for step in (None, vitals.serving, vitals.draining):
            if step is not None:
                step()
            seen.append(((await client.get("/live")).status_code, (await client.get("/ready")).status_code))
    assert seen == [(200, 503), (200, 200), (200, 503)]


@pytest.mark.parametrize("silent", [False, True], ids=["throttled", "silent"])
async def test_without_its_store_it_is_not_ready_and_tells_no_figure_of_it(tmp_path: Path, silent: bool) -> None:
    """An autoscaler that finds no figure leaves things as they are."""
    async with Failing(tmp_path / "o.sqlite") as store, probed(store) as (vitals, client):
        store.silent = silent
        vitals.serving()
        answer = await client.get("/ready")
        assert answer.status_code == 503
        assert "store" in answer.json()["trouble"]
        figures = (await client.get("/metrics")).text
        assert "claude_code_turns_running 2" in figures
        assert "turns_unfinished" not in figures


async def test_figures_count_the_turns(tmp_path: Path) -> None:
    async with SqliteOperations(tmp_path / "o.sqlite") as store, probed(store) as (_, client):
        for _ in range(3):
            await store.create(new_operation())
        answer = await client.get("/metrics")
    assert answer.headers["content-type"] == METRICS_TYPE
    lines = answer.text.splitlines()
    figures = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}
    assert {name: figures[f"claude_code_{name}"] for name in ("turns_running", "turns_waiting", "turns_unfinished", "draining")} == {
        "turns_running": 2,
        "turns_waiting": 1,
        "turns_unfinished": 3,
        "draining": 0,
    }
    described = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {re.sub(r"\{.*", "", name) for name in figures} == described
