"""Which wall a sandbox gets, and what is said where there is none; and who may connect to the runner."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner_image.errors import WallTooWeak, WallUnavailable
from runner_image.places import Places
from runner_image.strangers import is_stranger
from runner_image.walls import Wall, find_wall, launcher, refuse_weaker
from runner_image.walls.bubblewrap import BubblewrapWall
from runner_image.walls.landlock import LandlockWall
from tests.runner_image.walls.conftest import make_places
from workflow_schemas.walls import WallLevel

pytestmark = pytest.mark.anyio

WHAT_TO_DO = "Run the sandbox as a user other than root"


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
async def test_root_gets_no_wall_of_landlock(without_bubblewrap: None) -> None:
    with make_places() as places, pytest.raises(WallUnavailable, match=f"no bubblewrap.*root is not kept in.*{WHAT_TO_DO}"):
        await find_wall(places)


@pytest.mark.skipif(os.geteuid() == 0 or launcher.landlock_abi() < launcher.NEEDED_ABI, reason="needs Landlock and no root")
async def test_landlock_is_taken_where_there_is_no_bubblewrap(without_bubblewrap: None) -> None:
    with make_places() as places:
        facts = (await find_wall(places)).describe()
    assert (facts.level, facts.why_not_stronger) == ("landlock", "there is no bubblewrap in this sandbox")


def weak(places: Places) -> Wall:
    return LandlockWall(places=places, abi=7, why_not_stronger="somebody forbids namespaces")


def strong(places: Places) -> Wall:
    return BubblewrapWall(binary=Path("/usr/bin/bwrap"), places=places)


def test_a_weaker_wall_than_demanded_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        WallTooWeak, match=r"'namespaces'.* demanded.* Landlock of level 'landlock': somebody forbids.*Nothing was executed"
    ):
        refuse_weaker(weak(Places()), "namespaces")


@pytest.mark.parametrize(
    ("wall", "minimum"),
    [(weak, None), (weak, "landlock"), (strong, "landlock"), (strong, "namespaces")],
    ids=["weak, none demanded", "weak, weak demanded", "strong, weak demanded", "strong, strong demanded"],
)
def test_a_wall_that_is_strong_enough_is_taken(wall: Callable[[Places], Wall], minimum: WallLevel | None) -> None:
    refuse_weaker(wall(Places()), minimum)


@pytest.fixture
def listener(short_directory: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(short_directory / "s"))
        opened.listen()
        yield opened


def connected_by_child(listener: socket.socket, *, lives: bool) -> bool:
    """Have a child connect, and tell whether it counts as a stranger: while it lives, or when it has ended."""
    program = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({listener.getsockname()!r}); {'input()' if lives else ''}"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as child:
        accepted, _ = listener.accept()
        if not lives:
            child.wait()
        with accepted:
            found = is_stranger(accepted)
        child.communicate(b"\n")
    return found


def test_a_process_outside_the_wall_is_no_stranger(listener: socket.socket) -> None:
    assert not connected_by_child(listener, lives=True)


def test_who_has_ended_is_a_stranger(listener: socket.socket) -> None:
    """Its number may be another's by now; somebody behind the wall may hold what it connected."""
    assert connected_by_child(listener, lives=False)


def test_only_unix_sockets_are_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            assert not is_stranger(accepted)
