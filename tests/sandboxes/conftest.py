"""Real sandboxes behind real bubblewrap; where it cannot run, these tests fail and say what to change."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from context_client.conformance.container import execute
from context_client.sandboxes import LocalSandboxes, LocalSandboxSettings

Client = Callable[..., Any]
Run = Callable[[str], Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
async def sandboxes(anyio_backend: str) -> AsyncIterator[LocalSandboxes]:
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False)) as sandboxes:
        yield sandboxes


@asynccontextmanager
async def open_client(sandboxes: LocalSandboxes, session_id: str, upn: str = "one@example.test") -> AsyncIterator[httpx.AsyncClient]:
    """Speak to the sandbox of a session, as the server does."""
    endpoint = await sandboxes.endpoint(session_id=session_id, upn=upn)
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=60) as client:
        yield client


@pytest.fixture
async def client(sandboxes: LocalSandboxes, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(sandboxes, "code-shared") as client:
        yield client


@pytest.fixture
def run(client: httpx.AsyncClient) -> Run:
    """Run code inside the shared sandbox."""

    async def inside(code: str) -> dict[str, Any]:
        return await execute(client, code)

    return inside
