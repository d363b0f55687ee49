"""The server holds the container protocol inside the real local sandbox too."""

import httpx
import pytest

from context_client.conformance.container import CHECKS, run_check

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", CHECKS)
async def test_sandbox_conforms(client: httpx.AsyncClient, name: str) -> None:
    assert await run_check(name, client) is None
