"""The server holds the container protocol in a real container, and the Context API holds its own on top of it."""

from collections.abc import Callable

import httpx
import pytest

from context_client import ContextClient
from context_client.conformance import container, context_api
from context_client.conformance.context_api import Ground
from context_client.conformance.provider import ASKED, check_sizes
from context_client.sandboxes.containers import ContainerSandboxes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", container.CHECKS)
async def test_container_conforms(inside: httpx.AsyncClient, name: str) -> None:
    assert await container.run_check(name, inside) is None


@pytest.fixture
def provider(sandboxes: ContainerSandboxes) -> ContainerSandboxes:
    """Puts containers behind the embedded server of the folder above."""
    return sandboxes


@pytest.mark.parametrize("name", context_api.CHECKS)
async def test_context_api_conforms(client: ContextClient, ground_for: Callable[[ContextClient], Ground], name: str) -> None:
    assert await context_api.run_check(name, ground_for(client)) is None


async def test_sizes_are_kept(sandboxes: ContainerSandboxes) -> None:
    assert await check_sizes(sandboxes) == ASKED
