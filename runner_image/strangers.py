"""Keeps the agent from the Unix sockets of the runner and the server.

Landlock does not govern who connects to a Unix socket by its path (before its version 9). But everything behind that wall carries filters
of system calls that are inherited, and that nobody can take off: one for the CLI, one more for each shell command. Who has more of them
than the program that listens is told apart by that. The kernel names the process that connected by a handle, so that no later
process can be taken for it. Behind the wall of namespaces these sockets do not exist, and nobody is refused.
"""

import os
import select
import socket
import struct
from pathlib import Path

_PEER_HANDLE = 77  # SO_PEERPIDFD, since Linux 6.5; what offers a Landlock that is enough has it
_MARK = "Seccomp_filters:"


def depth(process: int | str = "self") -> int:
    """Return how many filters of system calls a process carries. Blocks for a moment.

    Raises:
        OSError: The process is gone.
    """
    for line in Path(f"/proc/{process}/status").read_text("utf-8", "replace").splitlines():
        if line.startswith(_MARK):
            return int(line.removeprefix(_MARK))
    return 0


def is_stranger(connection: socket.socket, *, deepest: int = 0) -> bool:
    """Tell whether a connection comes from deeper behind the wall than may be, or from a process that has ended. Blocks for a moment.

    Args:
        connection: An accepted Unix socket.
        deepest: How many filters more than this process the other one may carry: 0 for nothing of the agent, 1 for its CLI.
    """
    if connection.family != socket.AF_UNIX:
        return False  # nothing behind the wall has another socket
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if pid == 0:
        return False  # from outside this process space, where no agent is
    try:
        handle = connection.getsockopt(socket.SOL_SOCKET, _PEER_HANDLE)
    except OSError as error:
        return error.errno != 92  # ENOPROTOOPT: a kernel without such handles has no such wall either
    try:
        found = depth(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(0)) or found > depth() + deepest
    except OSError:
        return True
    finally:
        os.close(handle)
