"""Fixtures that give tests a running emulator, or skip them with the reason why there is none.

A conftest.py takes them by importing them. Tests that use them need `@pytest.mark.timeout(600)`: the first one installs.
"""

import uuid
from collections.abc import Iterator

import pytest

from tests.emulators.containers import azurite_container, cosmos_container
from tests.emulators.installation import EmulatorsMissing
from tests.emulators.servers import Emulator, azurite_process, cosmos_process


@pytest.fixture(scope="session")
def cosmos_emulator() -> Iterator[Emulator]:
    """A document server that speaks Cosmos DB's protocol."""
    try:
        with cosmos_process() as emulator:
            yield emulator
    except EmulatorsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def blob_emulator() -> Iterator[Emulator]:
    """Azurite's blob service."""
    try:
        with azurite_process() as emulator:
            yield emulator
    except EmulatorsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cosmos_in_container() -> Iterator[Emulator]:
    """Microsoft's own Cosmos DB emulator, in a container."""
    try:
        with cosmos_container() as emulator:
            yield emulator
    except EmulatorsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def blob_in_container() -> Iterator[Emulator]:
    """Azurite, in a container."""
    try:
        with azurite_container() as emulator:
            yield emulator
    except EmulatorsMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def database_name() -> str:
    """A database no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"
