"""Builds the image of this checkout, and runs it as it is meant to be run.

`python -m tests.images.building` only builds it, ahead of the tests, which then find nearly everything done.
"""

import hashlib
import os
import platform
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
        NoEngine: There is none; the message says why, in the engine's own words if it has some.
    """
    said = []
    for name in os.environ.get("CONTAINER_ENGINE", "docker podman").split():
        if shutil.which(name):
            asked = engine_call(name, "version")
            if asked.returncode == 0:
                return name
            words = (asked.stderr.strip().splitlines() or ["nothing"])[-1]
            refused = "permission denied" in words.lower()
            said.append(f"{name} is here but {'this user may not use it' if refused else 'does not answer'} ({words})")
    raise NoEngine("; ".join(said) or "no container engine is installed: apt-get install docker.io, and start its daemon")


def image_name(*, variant: str = "plain") -> str:
    """Name the image of this checkout; an engine may serve test runs of several checkouts and machines at once."""
    key = hashlib.sha256(f"{platform.node()}:{ROOT}".encode()).hexdigest()[:8]
    return f"claude-code-runner:test-{key}" if variant == "plain" else f"claude-code-runner:test-{key}-{variant}"


def build_image(*, variant: str = "plain") -> str:
    """Build the image of this checkout and return its name; some seconds if nothing has changed, minutes on a new machine."""
    words, environment = _building(variant)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return image_name(variant=variant)


def _building(variant: str) -> tuple[list[str], dict[str, str]]:
    """The command that builds, and its environment."""
    words = [str(ROOT / "runner_image/image/build.sh"), "--tag", image_name(variant=variant), "--variant", variant]
    return words, {**os.environ, "PYTHON": sys.executable}


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


if __name__ == "__main__":
    _words, _environment = _building("plain")
    os.execve(_words[0], _words, _environment)  # in place of this process: who ends that one, ends the build
