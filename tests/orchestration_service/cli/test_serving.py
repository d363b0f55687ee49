"""`serve` as a process: what it refuses as a replica, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.journeys.replicas import INSTANCE, KEY, free_port

GIVEN = {"CLAUDE_CODE_INSTANCE_ID": INSTANCE, "CLAUDE_CODE_API_KEY": KEY}
ELSEWHERE = {"CLAUDE_CODE_CONTEXT_URL": "http://127.0.0.1:9", "CLAUDE_CODE_CONTEXT_API_KEY": KEY}


@contextmanager
def serving(folder: Path, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    hidden = ("ANTHROPIC_", "CLAUDE_CODE_", "FOUNDATIONALLM_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)} | variables
    line = [sys.executable, "-m", "orchestration_service.cli", "serve", *words]
    process = subprocess.Popen(line, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, ["CLAUDE_CODE_INSTANCE_ID: is missing", "CLAUDE_CODE_API_KEY: is missing", "FoundationaLLM:Instance:Id"]),
        (GIVEN, ["CLAUDE_CODE_CONTEXT_URL", "CLAUDE_CODE_SANDBOXES"]),
    ],
    ids=["nothing", "no-sandboxes"],
)
def test_a_replica_makes_nothing_up(tmp_path: Path, variables: dict[str, str], named: list[str]) -> None:
    with serving(tmp_path, "--replica", **variables) as process:
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert all(name in told for name in named), told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


def test_it_goes_on_serving_for_a_while_after_it_is_told_to_end(tmp_path: Path) -> None:
    """Not ready any more, so that nothing new comes, and still there for what was on its way; then an end without failure."""
    port, probes = free_port(), free_port()
    more = {"CLAUDE_CODE_PROBE_PORT": str(probes), "CLAUDE_CODE_DRAIN_SECONDS": "1"}
    with serving(tmp_path, "--replica", "--port", str(port), **GIVEN, **ELSEWHERE, **more) as process:
        assert _status(f"http://127.0.0.1:{probes}/ready", 200) == 200
        process.send_signal(signal.SIGTERM)
        assert _status(f"http://127.0.0.1:{probes}/ready", 503) == 503
        assert _status(f"http://127.0.0.1:{port}/status", 200) == 200
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_port_for_probes_that_is_taken_is_told(tmp_path: Path) -> None:
    port = str(free_port())
    variables = {**GIVEN, **ELSEWHERE, "CLAUDE_CODE_PROBE_PORT": port}
    with serving(tmp_path, "--port", "0", **variables) as first:
        assert _status(f"http://127.0.0.1:{port}/live", 200) == 200
        with serving(tmp_path, "--port", "0", **variables) as second:
            _, told = second.communicate(timeout=60)
        assert first.poll() is None
    assert second.returncode == 1
    assert "CLAUDE_CODE_PROBE_PORT" in told
    assert "Traceback" not in told


def _status(url: str, wanted: int) -> int:
    end = time.monotonic() + 30
    found = 0
    while found != wanted and time.monotonic() < end:
        try:
            found = httpx.get(url, timeout=5).status_code
        except httpx.TransportError:
            time.sleep(0.05)
    return found
