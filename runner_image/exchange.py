"""The tiny program that the service runs through `executeCode`: one frame in, one frame out.

It is imported ahead by the server's fork server, so an exchange costs a fork, not a start of Python; it therefore imports nothing big.
"""

import fcntl
import os
import socket
import subprocess
import sys
import time

SOCKET = "/run/claude-code/runner.sock"
LOCK = "runner.lock"
"""In the runner's folder; held from before a runner starts until it has ended."""
_START_SECONDS = 20.0


def main(line: str) -> None:
    """Carry one frame to the runner of this sandbox, starting it if there is none, and print its answer.

    Raises:
        ConnectionError: No runner came up in time; the execution then ends with this error.
    """
    path = os.environ.get("CLAUDE_CODE_RUNNER_SOCKET", SOCKET)
    with _connected(path) as connection:
        data = line.encode("ascii")
        connection.sendall(len(data).to_bytes(4, "big") + data)
        length = int.from_bytes(_read(connection, 4), "big")
        sys.stdout.write(_read(connection, length).decode("ascii"))
        sys.stdout.write("\n")
        sys.stdout.flush()


def _connected(path: str) -> socket.socket:
    deadline = time.monotonic() + _START_SECONDS
    started: subprocess.Popen[bytes] | None = None
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > deadline or (started is not None and started.poll()):
                raise ConnectionError(f"no runner came up in this sandbox: {_last_words(path)}") from None
            if started is None:
                started = _start(path)
            time.sleep(0.01)


def claim_start(state: str) -> int | None:
    """Claim the start of a runner; None where one runs or is starting, which may take seconds on a slow machine.

    Gives the file number of the lock, for the runner to inherit (`--lock`): the claim is the runner's own life then.
    """
    lock = os.open(os.path.join(state, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # noqa: PTH118
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _start(path: str) -> "subprocess.Popen[bytes] | None":
    """Start a runner that outlives this execution, unless one is starting already."""
    state = os.path.dirname(path)  # noqa: PTH120 - pathlib is not worth its import time here
    os.makedirs(state, mode=0o700, exist_ok=True)  # noqa: PTH103
    if (lock := claim_start(state)) is None:
        return None
    try:
        with open(os.path.join(state, "runner.log"), "ab") as log:  # noqa: PTH118, PTH123
            return subprocess.Popen(
                [sys.executable, "-m", "runner_image.runner", "--state", state, "--lock", str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                cwd="/",
            )
    finally:
        os.close(lock)


def _last_words(path: str) -> str:
    try:
        with open(os.path.join(os.path.dirname(path), "runner.log"), "rb") as log:  # noqa: PTH118, PTH120, PTH123
            return log.read()[-1500:].decode("utf-8", "replace").strip() or "it says nothing"
    except OSError as error:
        return f"it left no log ({error})"


def _read(connection: socket.socket, length: int) -> bytes:
    pieces = []
    while length:
        piece = connection.recv(min(length, 1 << 20))
        if not piece:
            raise ConnectionError("the runner closed the connection in the middle of its answer")
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
