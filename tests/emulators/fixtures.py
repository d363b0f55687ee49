"""Fixtures that give tests a running emulator, or skip them with the reason why there is none.

`tests/conftest.py` takes them, so that a test run starts each of them once.
Tests that use them need `@pytest.mark.timeout(600)`: the first one installs.
"""

import uuid
from collections.abc import Iterator

import pytest

from tests.emulators.containers import azurite_container, cosmos_container, emulator_image
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
def image_of_emulators() -> Iterator[str]:
    """The image both containers run from, made where a container engine answers."""
    try:
        with emulator_image() as name:
            yield name
    except EmulatorsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cosmos_in_container(image_of_emulators: str) -> Iterator[Emulator]:
    """The document server, in a container."""
    try:
        with cosmos_container(image_of_emulators) as emulator:
            yield emulator
    except EmulatorsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def blob_in_container(image_of_emulators: str) -> Iterator[Emulator]:
    """Azurite, in a container."""
    try:
        with azurite_container(image_of_emulators) as emulator:
            yield emulator
    except EmulatorsMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def database_name() -> str:
    """A database no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"
