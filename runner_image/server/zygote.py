"""The fork server: a small single-threaded process with the usual modules loaded, which forks once per execution.

Starting an interpreter costs 15-80 ms, forking this one a millisecond. It is a process of its own because forking the
server would copy its event loop and its connections. It answers on one socket, in packets: a request carries a number
and four descriptors; the answers tell that the child runs and how it ended. When the socket closes, all of it ends.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from .child import run_child

PRELOADED = (
    "json",
    "zlib",
    "struct",
    "socket",
    "base64",
    "traceback",
    "backports.zstd",
    "runner_image.exchange",
)
"""What executions most often import; those that are not installed are passed over."""

PACKET_BYTES = 4096


def serve(control: socket.socket, data: Path) -> None:
    """Fork children on request until the other end of the socket is gone.

    Args:
        control: A connected SOCK_SEQPACKET socket.
        data: Working directory of the children.
    """
    children: dict[int, int] = {}
    wake_reader, wake_writer = socket.socketpair()
    wake_reader.setblocking(False)
    wake_writer.setblocking(False)
    signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake_reader in ready:
                with contextlib.suppress(BlockingIOError):
                    wake_reader.recv(PACKET_BYTES)
                _reap(children, control)
            if control in ready and not _handle_packet(control, children, data):
                break
    for pid in children:
        _kill_group(pid)


def _handle_packet(control: socket.socket, children: dict[int, int], data: Path) -> bool:
    try:
        packet, fds, _, _ = socket.recv_fds(control, PACKET_BYTES, 4)
    except ConnectionError:
        return False
    if not packet:
        return False
    request = json.loads(packet)
    if "kill" in request:
        for pid, number in children.items():
            if number == request["kill"]:
                _kill_group(pid)
        return True
    try:
        _fork(request, (fds[0], fds[1], fds[2], fds[3]), control, children, data)
    finally:
        for fd in fds:
            os.close(fd)
    return True


def _fork(
    request: Mapping[str, object],
    fds: tuple[int, int, int, int],
    control: socket.socket,
    children: dict[int, int],
    data: Path,
) -> None:
    number = request["id"]
    limits = request["limits"]
    if not isinstance(number, int) or not isinstance(limits, dict):
        raise TypeError("a request to the fork server needs a number and limits")
    try:
        pid = os.fork()
    except OSError as error:
        _tell(control, {"id": number, "refused": error.strerror})
        return
    if pid == 0:
        run_child(fds, data, limits)
    children[pid] = number
    _tell(control, {"id": number, "pid": pid})


def _reap(children: dict[int, int], control: socket.socket) -> None:
    """Tell of children that ended, and take what they left in their process group with them.

    The group is killed while its leader is still a zombie: until then nobody else can get that number.
    """
    while children:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return
        if ended is None:
            return
        number = children.pop(ended.si_pid, None)
        if number is not None:
            _kill_group(ended.si_pid)
        _, status = os.waitpid(ended.si_pid, 0)
        if number is not None:
            _tell(control, {"id": number, "status": os.waitstatus_to_exitcode(status)})


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _tell(control: socket.socket, message: Mapping[str, object]) -> None:
    with contextlib.suppress(ConnectionError):  # the server is gone; the next read ends the loop
        control.send(json.dumps(message).encode())


def main() -> None:
    """Load what executions use, then serve on the socket whose descriptor is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    data = Path(sys.argv[2])
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.append(str(data))  # last, so that no file of the session can take the place of an installed module
    gc.collect()
    gc.freeze()
    serve(control, data)


if __name__ == "__main__":
    main()
