"""The Cosmos DB and Blob store keeps what the port promises, on emulators of both."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from orchestration_service.operations.conformance import CHECKS
from orchestration_service.operations.cosmos import CosmosOperations
from orchestration_service.operations.cosmos_settings import CosmosSettings
from tests.emulators.servers import AZURITE_KEY, COSMOS_KEY, Emulator

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulators


@pytest.fixture
def settings(cosmos_emulator: Emulator, blob_emulator: Emulator, database_name: str) -> CosmosSettings:
    return CosmosSettings(
        endpoint=cosmos_emulator.url,
        key=SecretStr(COSMOS_KEY),
        database=database_name,
        blob_endpoint=blob_emulator.url,
        blob_key=SecretStr(AZURITE_KEY),
        blob_container=database_name,
        create_missing=True,
    )


@pytest.fixture
async def operations(settings: CosmosSettings) -> AsyncIterator[CosmosOperations]:
    async with CosmosOperations(settings) as store:
        yield store


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conformance(operations: CosmosOperations, check) -> None:  # type: ignore[no-untyped-def]
    await check(operations)
