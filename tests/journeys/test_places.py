"""One conversation, many places: a turn sealed in one kind of sandbox goes on in another."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr
from starlette.types import ASGIApp

from context_client.pools.emulator import EmulatorSettings, PoolEmulator
from context_client.pools.local_tokens import LocalTokens
from context_client.sandboxes.local import LocalSandboxes
from tests.images.building import NoEngine, build_image, find_engine
from tests.journeys.going_on import say, scripted, serve, service, step
from tests.stage import packed
from workflow_schemas.receipt import Receipt

KINDS = ("local", "container", "session-pool")

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@asynccontextmanager
async def place(kind: str) -> AsyncIterator[dict[str, Any]]:
    """Settings that lead to sandboxes of a kind."""
    if kind == "local":
        yield {}
        return
    if kind == "container":
        yield {"sandboxes": "container", "container_image": await asyncio.to_thread(build_image)}
        return
    key = secrets.token_hex(32)
    async with AsyncExitStack() as stack:
        emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(key)), await stack.enter_async_context(LocalSandboxes()))
        stack.push_async_callback(emulator.aclose)
        pool = await stack.enter_async_context(serve(cast(ASGIApp, emulator)))
        token = await LocalTokens(key.encode()).fetch()
        yield {
            "sandboxes": "session-pool",
            "session_pools": [{"name": "emulated", "endpoint": pool.base_url, "region": "here"}],
            "session_pool_key": key,
            "session_pool_token": token.value,
        }


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("first", KINDS)
async def test_a_conversation_goes_on_in_another_kind_of_sandbox(tmp_path: Path, first: str, then: str) -> None:
    """Sealed in one, restored in the other with files and the agent's memory; each receipt says where its turn ran."""
    if "container" in (first, then):
        try:
            find_engine()
        except NoEngine as error:
            pytest.skip(f"{error}: apt-get install docker.io, and start its daemon")
    model = scripted(step("echo one > new.txt; chmod 750 new.txt", "One."), step("cat new.txt; stat -c %a new.txt", "Two."))
    told: list[Receipt] = []
    async with serve(model) as endpoint:
        for kind, prompt in ((first, "Write one."), (then, "Go on.")):
            async with place(kind) as chosen, service(tmp_path, endpoint.base_url, **chosen) as caller:
                files = [await caller.upload("going-on", "repo.tar", packed({"r/readme.txt": "hello\n"}))] if not told else []
                ended = await say(caller, prompt, files)
                assert ended.status == "Completed", ended.answer
                told.append(ended.told)
    assert [(receipt.began.workspace, receipt.began.memory) for receipt in told] == [("fresh", "none"), ("restored", "session")]
    assert [_kind_of(receipt.sandbox) for receipt in told] == [first, then]
    heard = json.dumps(model.received[-1].body["messages"])
    assert "one\\n750" in heard
    assert "Write one." in heard


def _kind_of(words: str) -> str:
    return next(
        kind for begin, kind in (("session pool", "session-pool"), ("container", "container"), ("", "local")) if words.startswith(begin)
    )
