"""A code-interpreter pool behind the same five routes."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from starlette.applications import Starlette

from context_client.conformance import container as protocol
from context_client.pools.emulator import EmulatorSettings, InterpreterSandboxes, PoolEmulator
from context_client.sandboxes import LocalSandboxes, LocalSandboxSettings
from tests.context_client.pools.conftest import KEY, Pool, World, serving
from tests.context_client.pools.test_conformance import IN_THE_POOLS_WORDS
from tests.context_client.pools.test_provider import run

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sandbox(tmp_path: Path, container_on: Callable[[Path], Starlette]) -> AsyncIterator[httpx.AsyncClient]:
    """The five routes, a real sandbox, and the other routes in between."""
    world = World(tmp_path, container_on)
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False)) as sandboxes:
        emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(KEY)), InterpreterSandboxes(sandboxes, execution_seconds=5))
        async with serving(emulator) as url:
            pool = Pool(emulator, url, sandboxes)
            async with world.provider(pool, kind="code-interpreter") as sessions, world.client(sessions, "one") as client:
                yield client
        await emulator.aclose()


WITHOUT = {"gives_output_and_last_names", "is_a_program_of_its_own", "delete_ends_what_runs"}
"""Checks of what such a pool has not: values of the last statement, and an end of what runs when files are deleted."""


async def test_the_protocol_holds_but_for_what_such_a_pool_lacks(sandbox: httpx.AsyncClient) -> None:
    failed = {name: problem for name in protocol.CHECKS if (problem := await protocol.run_check(name, sandbox))}
    assert failed.keys() <= WITHOUT, failed


async def test_an_execution_that_takes_too_long_is_told(sandbox: httpx.AsyncClient) -> None:
    detail = await protocol.execute(sandbox, "import time; time.sleep(30)")
    assert detail["error"] == "the execution took too long"
    assert await run(sandbox, "print(1)") == "1\n"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "", "..", "a/.."])
async def test_names_that_leave_are_refused_here(sandbox: httpx.AsyncClient, name: str) -> None:
    assert (await sandbox.post("/files/download", json={"file_name": name})).status_code == 400


async def test_other_routes_do_not_exist(sandbox: httpx.AsyncClient) -> None:
    assert (await sandbox.get("/health")).status_code == 404


async def test_who_asks_in_the_pools_words_is_answered_in_them(sandbox: httpx.AsyncClient) -> None:
    told = (await sandbox.post("/code/execute", json=IN_THE_POOLS_WORDS)).json()
    assert (told["status"], told["result"]["stdout"]) == ("Succeeded", "1\n")
    assert (told["properties"]["status"], told["properties"]["stdout"], told["properties"]["result"]) == ("Success", "1\n", "")
