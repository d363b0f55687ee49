"""A service on a real socket for every test of the routes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.orchestration_service.serving import Service, served


@pytest.fixture
async def service(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Service]:
    async with served(tmp_path, keep_alive_seconds=0.1) as running:
        yield running
