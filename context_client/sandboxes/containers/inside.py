"""The first program in a container, and the service's half of the handshake with it.

The service makes the listening socket on its own side and hands it in through a second socket, which is bound into the
container read-only and used once. So nothing of the host is writable inside, no path inside leads to the server, and
the file modes on the host can be as narrow as they get, whatever user ids the engine maps.

The connection of the handshake stays: it is the container's lifeline. When the service closes it, or is killed, a
watcher inside ends everything; when the container ends, the service sees the end of the connection at once.
"""

import contextlib
import socket
from pathlib import Path

import anyio

MEETING_PLACE = "/run/service"
"""Where the directory with the handshake's socket is mounted inside, read-only."""

MEETING_SOCKET = "meet"

FIRST_PROGRAM = """
import os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
_, fds, _, _ = socket.recv_fds(line, 1, 1)
if os.fork() == 0:
    os.close(fds[0])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        line.recv(1)
    finally:
        os.kill(-1, signal.SIGKILL)
        os._exit(0)
line.close()
os.set_inheritable(fds[0], True)
os.execvp(sys.argv[2], [word.replace("{fd}", str(fds[0])) for word in sys.argv[2:]])
"""
"""Takes the listening socket, leaves a watcher on the lifeline, and becomes the server; `{fd}` in its words is the socket's number."""


def first_words(python: str, server_words: tuple[str, ...]) -> tuple[str, ...]:
    """Build the container's command.

    Args:
        python: The interpreter inside.
        server_words: The server's command line.
    """
    return (python, "-I", "-S", "-c", FIRST_PROGRAM, f"{MEETING_PLACE}/{MEETING_SOCKET}", *server_words)


def listen(path: Path, mode: int) -> socket.socket:
    """Make a listening Unix socket; blocks for a moment.

    Args:
        path: Where.
        mode: Who may connect, beside what the directories above allow.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(1024)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def hand_over(meeting: socket.socket, listener: socket.socket) -> socket.socket:
    """Wait for the container's first program and give it the server's socket.

    Args:
        meeting: The handshake's listening socket.
        listener: The server's.

    Returns:
        The lifeline.
    """
    while True:
        await anyio.wait_readable(meeting)
        with contextlib.suppress(BlockingIOError):
            line, _ = meeting.accept()
            break
    try:
        socket.send_fds(line, [b"x"], [listener.fileno()])
        line.setblocking(False)
    except BaseException:
        line.close()
        raise
    return line


def is_cut(line: socket.socket) -> bool:
    """Say whether the other end of a lifeline is gone, or speaks, which only hostile code would do."""
    try:
        line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
