"""The words that run the image as it is meant to be run: closed in, with a socket instead of a network.

`python -m runner_image.image.starting --engine docker IMAGE` starts it once and prints how long it takes to answer.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

USER = 10001
LISTEN = "/run/listen"
SOCKET = "server.sock"
MEBIBYTES: Mapping[str, int] = MappingProxyType(
    {"/mnt/data": 640, "/workspace": 768, "/outputs": 256, "/run/claude-code": 512, "/tmp": 256, "/home/agent": 64}
)
SHARED_MEMORY = 64
_START_SECONDS = 60.0


def run_words(*, listen: Path, user: int = USER, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the words between `docker run` and the name of the image.

    Args:
        listen: Folder of the host, writable by the user, in which the socket appears.
        user: User id inside.
        more: Further options.
    """
    words = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none"]
    words += ["--user", f"{user}:{user}", "--pids-limit", "512", "--memory", "2g", "--shm-size", f"{SHARED_MEMORY}m"]
    for place, mebibytes in MEBIBYTES.items():
        words += ["--tmpfs", f"{place}:uid={user},gid={user},mode=0700,size={mebibytes}m,exec"]  # noexec is the engine's default
    words += ["--volume", f"{listen}:{LISTEN}", "--env", f"CLAUDE_CODE_SERVER_UDS={LISTEN}/{SOCKET}"]
    return (*words, *more)


def listening_folder(parent: Path) -> tuple[Path, int]:
    """Make the folder of a socket; gives it with the user id that may write there.

    Args:
        parent: A folder that nobody else may enter.
    """
    folder = parent / "listen"
    folder.mkdir(mode=0o700)
    if os.geteuid() != 0:
        return folder, os.geteuid()
    os.chown(folder, USER, USER)
    return folder, USER


def measure(engine: str, image: str) -> float:
    """Start the image once; gives the seconds until it answers.

    Args:
        engine: Command of the container engine.
        image: Name of the image.

    Raises:
        subprocess.CalledProcessError: The engine refuses; its reason was printed.
        TimeoutError: The image does not answer.
    """
    with tempfile.TemporaryDirectory() as parent:
        folder, user = listening_folder(Path(parent))
        begin = time.monotonic()
        words = [engine, "run", "--detach", "--rm", *run_words(listen=folder, user=user), image]
        container = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        try:
            while not _answers(folder / SOCKET):
                if time.monotonic() - begin > _START_SECONDS:
                    raise TimeoutError(f"the image {image!r} does not answer; look at: {engine} logs {container}")
                time.sleep(0.005)
            return time.monotonic() - begin
        finally:
            subprocess.run([engine, "rm", "--force", container], stdout=subprocess.DEVNULL, check=False)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_START_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


def main() -> None:
    """Measure, and print milliseconds."""
    parser = argparse.ArgumentParser(prog="python -m runner_image.image.starting", description=__doc__)
    parser.add_argument("--engine", default="docker")
    parser.add_argument("image")
    asked = parser.parse_args()
    sys.stdout.write(f"{measure(asked.engine, asked.image) * 1000:.0f}\n")


if __name__ == "__main__":
    main()
