"""Builds the image of this checkout, and runs it as it is meant to be run."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from runner_image.image.starting import SOCKET, listening_folder, run_words

ROOT = Path(__file__).resolve().parents[2]
TAG = "claude-code-runner:test"
START_SECONDS = 30
HEALTH = "/opt/claude-code/src/runner_image/image/health.sh"


class NoEngine(Exception):
    """No container engine answers on this machine."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container that answers."""

    engine: str
    name: str
    socket: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program in it, beside the server."""
        return engine_call(self.engine, "exec", self.name, *words)

    def ask(self, path: str) -> dict[str, str]:
        """Ask one of its routes."""
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), base_url="http://sandbox") as client:
            answer: dict[str, str] = client.get(path).raise_for_status().json()
        return answer


def find_engine() -> str:
    """Return the command of an engine that answers.

    Raises:
        NoEngine: There is none.
    """
    for name in ("docker", "podman"):
        if shutil.which(name) and engine_call(name, "version").returncode == 0:
            return name
    raise NoEngine("neither docker nor podman answers here")


def build_image(*, variant: str = "plain") -> str:
    """Build the image of this checkout and return its name; some seconds if nothing has changed, minutes on a new machine."""
    tag = TAG if variant == "plain" else f"{TAG}-{variant}"
    words = [str(ROOT / "runner_image/image/build.sh"), "--tag", tag, "--variant", variant]
    done = subprocess.run(words, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tag


@contextmanager
def container(
    engine: str, image: str, *, more: tuple[str, ...] = (), words: tuple[str, ...] = (), user: int | None = None
) -> Iterator[Container]:
    """Run the image until the end of the block; it answers when the block begins.

    Args:
        engine: Command of the engine.
        image: Name of the image.
        more: Further options for the engine.
        words: Command in place of the image's own.
        user: Another user id than the usual one.
    """
    with tempfile.TemporaryDirectory() as parent:
        folder, usual = listening_folder(Path(parent))
        if user is not None:
            shutil.chown(folder, user, user)
        options = run_words(listen=folder, user=user or usual, more=more)
        started = engine_call(engine, "run", "--detach", *options, image, *words)
        assert started.returncode == 0, started.stderr
        name = started.stdout.strip()
        try:
            made = Container(engine=engine, name=name, socket=folder / SOCKET)
            _wait(made)
            yield made
        finally:
            engine_call(engine, "rm", "--force", name)


def engine_call(engine: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the engine's command."""
    return subprocess.run([engine, *words], capture_output=True, text=True, check=False)


def _wait(made: Container) -> None:
    """Ask as the engine's own health check does, wherever the server listens."""
    end = time.monotonic() + START_SECONDS
    while made.run("sh", HEALTH).returncode != 0:
        assert time.monotonic() < end, engine_call(made.engine, "logs", made.name).stderr
        time.sleep(0.02)
