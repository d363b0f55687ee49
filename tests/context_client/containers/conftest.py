"""Real containers of a real engine; without one these tests are skipped with the reason.

`CLAUDE_CODE_RUNNER_IMAGE` names the image to test with; by default a small one is made from this machine and checkout.
"""

import gc
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import replace
from typing import Any

import docker  # type: ignore[import-untyped]  # comes with the extra `containers`
import httpx
import pytest

from context_client.conformance.container import execute
from context_client.sandboxes.containers import ContainerSandboxes, ContainerSandboxSettings

from .image import small_image

Run = Callable[[str], Awaitable[dict[str, Any]]]
Settings = Callable[..., ContainerSandboxSettings]


@pytest.fixture(scope="session")
def engine_api() -> Iterator[Any]:
    """The engine's low-level client, for looking at things from the side."""
    api = _engine()
    with closing(api):
        yield api


def _engine() -> Any:
    """A client that has spoken with the engine. The socket of an attempt that failed is the client's to forget, and ours to collect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return docker.APIClient(base_url=os.environ.get("DOCKER_HOST"), version="auto", timeout=60)
        except (docker.errors.DockerException, OSError) as error:
            reason = str(error)
        gc.collect()  # a skip raised above would keep the socket until the run ends, and fail it there
    pytest.skip(f"no container engine answers: {reason}")


@pytest.fixture(scope="session")
def image(engine_api: Any) -> Iterator[str]:
    """The image to test with."""
    named = os.environ.get("CLAUDE_CODE_RUNNER_IMAGE")
    if named:
        yield named
        return
    with small_image(engine_api) as name:
        yield name


@pytest.fixture(scope="session")
def quick(image: str) -> Settings:
    """Settings with an instance of their own, so that parallel runs do not touch each other's containers."""
    usual = ContainerSandboxSettings(instance_id=f"test-{os.getpid()}", image=image, prewarm_runner=False)
    return lambda **changes: replace(usual, **changes)


@pytest.fixture(scope="module")
async def sandboxes(quick: Settings, anyio_backend: str) -> AsyncIterator[ContainerSandboxes]:
    async with ContainerSandboxes(quick(instance_id=f"shared-{os.getpid()}")) as sandboxes:
        yield sandboxes


@asynccontextmanager
async def open_client(sandboxes: ContainerSandboxes, session_id: str, upn: str = "one@example.test") -> AsyncIterator[httpx.AsyncClient]:
    """Speak to the sandbox of a session, as the server does."""
    endpoint = await sandboxes.endpoint(session_id=session_id, upn=upn)
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=60) as client:
        yield client


@pytest.fixture
def speak() -> Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]:
    return open_client


@pytest.fixture
async def inside(sandboxes: ContainerSandboxes, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(sandboxes, "code-shared") as client:
        yield client


@pytest.fixture
def run(inside: httpx.AsyncClient) -> Run:
    """Run code inside the shared sandbox."""

    async def work(code: str) -> dict[str, Any]:
        return await execute(inside, code)

    return work
