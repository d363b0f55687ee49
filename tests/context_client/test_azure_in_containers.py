"""The embedded server with the accounts in containers, wherever a container engine runs."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from context_client.conformance.context_api import CHECKS, Ground, run_check
from context_client.embedded.azure_settings import AzureStorage
from context_client.embedded.settings import EmbeddedSettings
from tests.emulators.servers import AZURITE_KEY, COSMOS_KEY, Emulator

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulators, and makes the image


@pytest.fixture
def settings(cosmos_in_container: Emulator, blob_in_container: Emulator, database_name: str, tmp_path: Path) -> EmbeddedSettings:
    azure = AzureStorage(
        cosmos_endpoint=cosmos_in_container.url,
        cosmos_key=SecretStr(COSMOS_KEY),
        database=database_name,
        blob_endpoint=blob_in_container.url,
        blob_key=SecretStr(AZURITE_KEY),
        create_missing=True,
    )
    instance, key = "11111111-2222-3333-4444-555555555555", SecretStr("a-key-for-tests")
    return EmbeddedSettings(folder=tmp_path / "context", instance_id=instance, api_key=key, azure=azure)


async def test_conformance(ground: Ground, subtests: pytest.Subtests) -> None:
    """All checks in one test, since each would be skipped for the same reason."""
    for name in CHECKS:
        with subtests.test(name):
            assert await run_check(name, ground) is None
