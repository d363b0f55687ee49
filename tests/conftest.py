"""Fixtures every test may use."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blocking_calls import BlockingCalls
from tests.emulators.fixtures import blob_emulator as blob_emulator
from tests.emulators.fixtures import blob_in_container as blob_in_container
from tests.emulators.fixtures import cosmos_emulator as cosmos_emulator
from tests.emulators.fixtures import cosmos_in_container as cosmos_in_container
from tests.emulators.fixtures import database_name as database_name
from tests.emulators.fixtures import image_of_emulators as image_of_emulators
from tests.side_by_side import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.side_by_side import pytest_sessionfinish as pytest_sessionfinish
from tests.side_by_side import pytest_terminal_summary as pytest_terminal_summary
from tests.side_by_side import pytest_testnodedown as pytest_testnodedown


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, the loop the product runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def blocking_calls() -> BlockingCalls:
    """The one hook of this test run."""
    hook = BlockingCalls()
    hook.install()
    return hook


@pytest.fixture(autouse=True)
def no_blocking_calls(blocking_calls: BlockingCalls) -> Iterator[None]:
    """Fail a test during which our source blocked the event loop; the remedy is a worker thread."""
    with blocking_calls.watching() as found:
        yield
    assert not found, "our source blocked the event loop"


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """An empty folder with a short path: the name of a Unix socket may have 107 bytes, and `tmp_path` is long."""
    with tempfile.TemporaryDirectory(prefix="cc-") as name:
        yield Path(name)
