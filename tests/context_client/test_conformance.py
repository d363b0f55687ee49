"""The embedded server is a Context API, in process and over a socket."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from fastapi import FastAPI

from context_client import ContextClient
from context_client.conformance.context_api import CHECKS, Ground, run_check
from context_client.embedded.settings import EmbeddedSettings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", CHECKS)
async def test_in_process(name: str, ground: Ground) -> None:
    assert await run_check(name, ground) is None


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
