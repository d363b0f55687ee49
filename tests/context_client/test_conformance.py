"""The embedded server is a Context API, in process and over a socket."""

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from fastapi import FastAPI

from context_client import ContextClient
from context_client.conformance.context_api import CHECKS, Ground, run_check
from context_client.embedded.settings import EmbeddedSettings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", CHECKS)
async def test_in_process(name: str, ground: Ground) -> None:
    assert await run_check(name, ground) is None


async def test_the_command_line(
    app: FastAPI, settings: EmbeddedSettings, serve_app: Callable[[object], AbstractAsyncContextManager[str]]
) -> None:
    """By address and key: 0 where all asked checks hold, 1 and a reason where one does not."""
    async with serve_app(app) as url:
        asked = [sys.executable, "-m", "context_client.conformance", "--url", url, "--instance", settings.instance_id]
        asked += ["--only", "keeps_a_file", "--only", "executes_code", "--api-key"]
        good = await anyio.run_process([*asked, settings.api_key.get_secret_value()])
        bad = await anyio.run_process([*asked, "wrong"], check=False)
    assert good.stdout.decode().splitlines() == ["ok   keeps_a_file", "ok   executes_code"]
    assert (bad.returncode, bad.stdout.count(b"FAIL"), b"Unauthorized" in bad.stdout) == (1, 2, True)


@pytest.mark.parametrize("name", CHECKS)
async def test_over_a_socket(
    name: str,
    app: FastAPI,
    settings: EmbeddedSettings,
    serve_app: Callable[[object], AbstractAsyncContextManager[str]],
    ground_for: Callable[[ContextClient], Ground],
) -> None:
    key = settings.api_key.get_secret_value()
    async with (
        serve_app(app) as url,
        ContextClient(base_url=url, api_key=key, instance_id=settings.instance_id) as client,
    ):
        assert await run_check(name, ground_for(client)) is None
