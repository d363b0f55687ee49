"""The server as a process: what it loads, how it starts, and that nothing of it stays."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def server(short_directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running server of its own session."""
    words = ["--uds", "s.sock", "--data", "data", "--state", "state", "--workspace", "workspace"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-P", "-m", "runner_image.server", *words], cwd=short_directory, env=environment)
    deadline = time.monotonic() + 20
    while not (short_directory / "s.sock").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


def test_loads_no_framework() -> None:
    """Half a gigabyte is all the sandbox has, and every start pays for every import."""
    code = "import sys, runner_image.server.__main__, runner_image.server.serving\nprint(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"pydantic", "fastapi", "starlette", "httpx", "anyio", "claude_agent_sdk"} & set(said.split())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["told", "killed"])
def test_nothing_outlives_the_server(server: subprocess.Popen[bytes], short_directory: Path, how: signal.Signals) -> None:
    """Its fork server and running executions end with it, however it ends."""
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(short_directory / "s.sock")), base_url="http://server") as client:
        code = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)"
        with pytest.raises(httpx.ReadTimeout):
            client.post("/code/execute", json={"code": code}, timeout=3)
    pid = int((short_directory / "data" / "pid").read_text())
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    server.send_signal(how)
    server.wait(20)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (_runs(pid) or _runs(parent)):
        time.sleep(0.05)
    assert not _runs(pid)
    assert not _runs(parent)


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param([sys.executable, "-c", "print('another')"], 0, "another\n", id="another program"),
        pytest.param(
            ["no-such-program", "--uds", "s"], 1, "'no-such-program' cannot be run here: No such file or directory\n", id="missing"
        ),
        pytest.param(
            ["--uds", "/tmp/" + "d" * 150, "--data", ".", "--state", "."], 1, "with a path of at most 107 bytes\n", id="deep socket"
        ),
    ],
)
def test_words_of_the_command_line(tmp_path: Path, words: list[str], status: int, said: str) -> None:
    """The image's entry is the server: words after the image's name are its options, or a program to become."""
    command = [sys.executable, "-P", "-m", "runner_image.server", *words]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=30
    )
    assert ended.returncode == status
    assert (ended.stdout + ended.stderr).endswith(said)
