"""The server holds the container protocol inside the real local sandbox too."""

import httpx
import pytest

from context_client.conformance.container import CHECKS, run_check
from context_client.conformance.provider import ASKED, check_sizes
from context_client.sandboxes import LocalSandboxes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", CHECKS)
async def test_sandbox_conforms(client: httpx.AsyncClient, name: str) -> None:
    assert await run_check(name, client) is None


async def test_sizes_are_kept(sandboxes: LocalSandboxes) -> None:
    held = sandboxes.describe().enforced["cpu"] == "kernel"
    assert await check_sizes(sandboxes) == (ASKED if held else ASKED.model_copy(update={"cpus": None}))
