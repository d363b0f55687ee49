"""Builds the image of the service, and starts it as a cluster does: as nobody, with nothing to write to but two folders.

`python -m tests.deployment_templates.service_image` only builds it, ahead of the tests.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.images.building import ROOT, engine_call
from tests.journeys.replicas import Process, free_port, started

USER = 10001
DATA = "/var/lib/claude-code"


def image_name() -> str:
    """Name the image of this checkout."""
    key = hashlib.sha256(f"{platform.node()}:{ROOT}".encode()).hexdigest()[:8]
    return f"claude-code-service:test-{key}"


def build_service_image() -> str:
    """Build the image of this checkout and return its name."""
    words, environment = _building()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return image_name()


def run_words(*, network: str, user: int = USER) -> list[str]:
    """The words between `docker run` and the name of the image."""
    words = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", f"{user}:{user}"]
    return [*words, "--network", network, "--memory", "1g", "--pids-limit", "128", "--tmpfs", f"/tmp:uid={user},gid={user},mode=0700"]


@contextmanager
def service_container(engine: str, image: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Run the image without a network until the end of the block; gives the container's name."""
    name = f"claude-code-service-{uuid.uuid4().hex[:12]}"
    given = [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
    words = ["run", "--detach", "--name", name, *run_words(network="none"), "--tmpfs", f"{DATA}:uid={USER},gid={USER},mode=0700"]
    made = engine_call(engine, *words, *given, image)
    assert made.returncode == 0, made.stderr
    try:
        yield name
    finally:
        engine_call(engine, "rm", "--force", name)


async def start_container(engine: str, image: str, folder: Path, variables: Mapping[str, str], number: int) -> Process:
    """Start a replica in a container; the engine's command stands for it and passes signals on."""
    shared, user = folder / "shared", os.geteuid() or USER
    shared.mkdir()
    if user == USER:
        shutil.chown(shared, user, user)
    port = free_port()
    inside = {**variables, "CLAUDE_CODE_DATA_DIR": DATA, "CLAUDE_CODE_PORT": str(port), "CLAUDE_CODE_PROBE_PORT": str(free_port())}
    given = [word for key in inside for word in ("--env", key)]  # the values stay out of the process list
    words = [engine, "run", "--rm", *run_words(network="host", user=user), "--volume", f"{shared}:{DATA}", *given, image]
    return await started(words, {**os.environ, **inside}, port=port, log=folder / f"container-{number}.log")


def _building() -> tuple[list[str], dict[str, str]]:
    words = [str(ROOT / "deployment_templates/service/build.sh"), "--tag", image_name()]
    return words, {**os.environ, "PYTHON": sys.executable}


if __name__ == "__main__":
    _words, _environment = _building()
    os.execve(_words[0], _words, _environment)  # in place of this process: who ends that one, ends the build
