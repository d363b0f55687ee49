"""What a runner ends at the end of a run: what is behind a wall of its own, and nothing of anybody else's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_client.sandboxes.runtime import find_runtime

ENDING = """
import asyncio, subprocess, sys
from runner_image.leftovers import end_leftovers
own = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
own.stdout.readline()
left = asyncio.run(end_leftovers())
print(left, own.wait(timeout=30) != 0)
"""


@pytest.fixture(scope="module")
def behind_a_wall() -> list[str]:
    """A command that runs in a process space of its own until it is killed, and says when it does."""
    binary = str(find_runtime().bubblewrap.path)
    inside = "import time; print('here', flush=True); time.sleep(300)"
    return [binary, "--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/", "--", sys.executable, "-c", inside]


@pytest.fixture
def stranger(behind_a_wall: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's sandbox on the same machine."""
    with subprocess.Popen(behind_a_wall, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_on_a_shared_machine_only_what_the_runner_started_is_ended(stranger: subprocess.Popen[bytes], behind_a_wall: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", ENDING, *behind_a_wall], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "True"], done.stderr
    assert stranger.poll() is None
