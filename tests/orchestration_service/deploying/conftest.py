"""A platform to install on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.emulators.servers import Emulator
from tests.orchestration_service.deploying.standins.world import World, open_world


@pytest.fixture
async def world(blob_emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """One with other people's things in it, behind a certificate this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "store.crt"))
    async with open_world(blob_emulator, tmp_path) as made:
        yield made
