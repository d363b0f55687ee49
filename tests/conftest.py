"""Fixtures every test may use."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, the loop the product runs on."""
    return "asyncio"
