"""The same promises with the accounts in containers, wherever a container engine runs."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from orchestration_service.operations.conformance import CHECKS
from orchestration_service.operations.cosmos import CosmosOperations
from orchestration_service.operations.cosmos_settings import CosmosSettings
from tests.emulators.servers import AZURITE_KEY, COSMOS_KEY, Emulator

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulators, and makes the image


@pytest.fixture
async def operations(cosmos_in_container: Emulator, blob_in_container: Emulator, database_name: str) -> AsyncIterator[CosmosOperations]:
    settings = CosmosSettings(
        endpoint=cosmos_in_container.url,
        key=SecretStr(COSMOS_KEY),
        database=database_name,
        blob_endpoint=blob_in_container.url,
        blob_key=SecretStr(AZURITE_KEY),
        blob_container=database_name,
        create_missing=True,
    )
    async with CosmosOperations(settings) as store:
        yield store


async def test_conformance(operations: CosmosOperations, subtests: pytest.Subtests) -> None:
    """All checks in one test, since each would be skipped for the same reason."""
    for check in CHECKS:
        with subtests.test(check.__name__):
            await check(operations)
