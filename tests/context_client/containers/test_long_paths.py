"""The same with containers, whose sockets have the longest names of all."""

from pathlib import Path

import pytest

from context_client.sandboxes.containers import ContainerSandboxes
from tests.context_client.test_long_paths import a_session_works, deepen

from .conftest import Settings


@pytest.mark.anyio
async def test_a_session_works_on_a_deep_data_folder(quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = quick(instance_id="deep")
    deep = deepen(tmp_path, monkeypatch)
    async with ContainerSandboxes(settings) as sandboxes:
        await a_session_works(deep, sandboxes)
