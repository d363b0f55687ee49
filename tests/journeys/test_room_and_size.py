"""A turn says how large its sandbox shall be, and waits for room with its user looking on."""

import secrets
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from pydantic import SecretStr
from starlette.types import ASGIApp

from context_client.pools.emulator import EmulatorSettings, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from context_client.sandboxes.groups import find_groups
from context_client.sandboxes.local import LocalSandboxes
from orchestration_service import pipeline
from orchestration_service.planning import SandboxLimits
from orchestration_service.scripted.endpoint import serve
from tests.stage import bash, open_stage, says

pytestmark = pytest.mark.anyio

ASKED: dict[str, Any] = {"sandbox_cpu": 0.5, "sandbox_memory": "1Gi", "sandbox_processes": 300, "sandbox_disk": "1000Mi"}


async def test_a_workflow_sizes_its_sandbox(tmp_path: Path) -> None:
    """The agent finds the places as large as asked; a later wish waits for the next sandbox, and too much is refused. All of it is said."""
    async with open_stage(tmp_path) as stage:
        model = stage.model(bash("df --block-size=1M --output=size /workspace | tail -1"), says("One."), says("Two."), says("Three."))
        first = await model.turn("How much room is there?", conversation="sized", **ASKED)
        assert "300" in model.prompts(1)
        told = [words for words in first.receipt.remarks if "cannot be held to 0.5 CPU" in words]
        assert bool(told) == (await anyio.to_thread.run_sync(find_groups) is None)
        second = await model.turn("And now?", conversation="sized", sandbox_disk="2000Mi")
        assert [words for words in second.receipt.remarks if "started with 1000 MiB for files" in words and "now: 2000 MiB" in words]
        third = await model.turn("More!", sandbox_memory="4Gi")
        assert third.status == "Failed"
        assert "4096 MiB of memory (at most 2048 MiB of memory)" in third.answer


async def test_a_turn_waits_for_room_and_its_user_sees_the_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slot, held for its cooldown after the first turn: the second waits, is shown its place, and runs in the time that is left then.
    The pool decides the size."""
    monkeypatch.setattr(pipeline, "_USUAL_OPENING_SECONDS", 2.0)
    key = secrets.token_hex(32)
    async with AsyncExitStack() as stack:
        limits = EmulatorSettings(token_key=SecretStr(key), max_sessions=1, cooldown_seconds=4)
        emulator = PoolEmulator(limits, await stack.enter_async_context(LocalSandboxes()))
        stack.push_async_callback(emulator.aclose)
        pool = await stack.enter_async_context(serve(cast(ASGIApp, emulator)))
        chosen: dict[str, Any] = {
            "sandboxes": "session-pool",
            "session_pools": [{"name": "small", "endpoint": pool.base_url, "max_sessions": 1, "cooldown_seconds": 4}],
            "session_pool_key": key,
            "session_pool_token": (await LocalTokens(key.encode()).fetch()).value,
            "session_pool_wait_seconds": 60,
        }
        stage = await stack.enter_async_context(open_stage(tmp_path, limits=SandboxLimits(max_turn_seconds=900), **chosen))
        model = stage.model(says("One."), says("Two."))
        assert (await model.turn("First.", **ASKED)).status == "Completed"
        turn = await model.turn("Second.", **ASKED)
        assert turn.status == "Completed"
        shown = [item["value"] for state in turn.polls[:-1] for item in state["result"]["content"]]
        assert [text for text in shown if "Waiting for room in the session pool: place 1 of 1, at the latest in about" in text]
        assert [words for words in turn.receipt.remarks if "decides its size" in words and "0.5 CPU, 1024 MiB of memory" in words]
        assert [words for words in turn.receipt.remarks if "longer than usual for its sandbox; 8" in words]
        assert "administrator" not in turn.answer
    (line,) = [record for record in caplog.records if record.name == "orchestration_service.sandboxes"]
    assert (line.levelname, "session pool small: " in line.message, "2 placed; 1 had to wait" in line.message) == ("WARNING", True, True)


async def test_a_pool_with_another_version_is_told_to_the_user(tmp_path: Path) -> None:
    """The image of the pool says another digest than the service's own sources have."""

    async def stranger(scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b'{"source_digest": "sha256:theirs", "value": []}'
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    async with serve(cast(ASGIApp, stranger)) as pool:
        chosen: dict[str, Any] = {
            "sandboxes": "session-pool",
            "session_pools": [{"name": "old", "endpoint": pool.base_url}],
            "session_pool_key": "k" * 32,
            "session_pool_token": "token",
        }
        async with open_stage(tmp_path, **chosen) as stage:
            turn = await stage.model(says("Never.")).turn("Work.")
    assert turn.status == "Failed"
    assert "the image of session pool 'old' does not fit this service: its source_digest is 'sha256:theirs'" in turn.answer
