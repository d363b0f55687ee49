"""The image, built once per run, and one container of it for each module. Only a missing engine is a reason to skip."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.images.building import Container, NoEngine, build_image, container, find_engine


@pytest.fixture(scope="session")
def engine() -> str:
    try:
        return find_engine()
    except NoEngine as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def image(engine: str) -> str:
    return build_image()


@pytest.fixture(scope="module")
def sandbox(engine: str, image: str) -> Iterator[Container]:
    with container(engine, image) as made:
        yield made


@pytest.fixture
async def client(sandbox: Container, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(uds=str(sandbox.socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://sandbox", timeout=60) as client:
        yield client
