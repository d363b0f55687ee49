"""The server holds the container protocol in the image too: read-only, without capabilities, over a socket."""

import httpx
import pytest

from context_client.conformance.container import CHECKS, run_check

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # the first one to ask builds the image


@pytest.mark.parametrize("name", CHECKS)
async def test_container_conforms(client: httpx.AsyncClient, name: str) -> None:
    assert await run_check(name, client) is None
