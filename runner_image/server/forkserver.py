"""The server's end of the fork server: starts it, talks to it, starts it again when it dies.

It is started before the slow imports of the web server, so that both load at the same time on two cores.
"""

import array
import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from .errors import ForkServerGone

_HIDDEN_WORDS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL", "IDENTITY_", "MSI_", "CONNECTION_STRING")
_PACKET_BYTES = 4096
_END_SECONDS = 1.0


def execution_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what looks like a secret: a platform may give its sandboxes an identity that code must not have."""
    return {name: value for name, value in environment.items() if not any(word in name.upper() for word in _HIDDEN_WORDS)}


class ForkServer:
    """One running fork server process."""

    def __init__(self, data: Path) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -P: the working directory belongs to hostile code and must not be a source of modules.
            words = [sys.executable, "-P", "-X", "utf8", "-m", "runner_image.server.zygote"]
            self._process = subprocess.Popen(
                [*words, str(theirs.fileno()), str(data)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=execution_environment(os.environ),
                start_new_session=True,
            )
        ours.setblocking(False)
        self._socket = ours

    def attach(self, on_message: Callable[[dict[str, object]], None], on_end: Callable[[], None]) -> None:
        """Hear what it says, on the running event loop.

        Args:
            on_message: Called with each packet.
            on_end: Called once when the process is gone.
        """
        loop = asyncio.get_running_loop()

        def read() -> None:
            while True:
                try:
                    packet = self._socket.recv(_PACKET_BYTES)
                except BlockingIOError:
                    return
                except OSError:
                    packet = b""
                if not packet:
                    loop.remove_reader(self._socket.fileno())
                    on_end()
                    return
                on_message(json.loads(packet))

        loop.add_reader(self._socket.fileno(), read)

    async def send(self, message: Mapping[str, object], fds: tuple[int, ...] = ()) -> None:
        """Send one packet.

        Raises:
            ForkServerGone: The process is gone.
        """
        packet = [json.dumps(message).encode()]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        while True:
            try:
                self._socket.sendmsg(packet, ancillary)
                return
            except BlockingIOError:
                await asyncio.sleep(0.002)  # its queue is full of requests: let it fork some of them
            except OSError as error:
                raise ForkServerGone("The process that starts executions is gone; send the code again.") from error

    async def close(self) -> None:
        """End it together with everything it runs; harmless when repeated."""
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        await asyncio.to_thread(self._wait)

    def _wait(self) -> None:
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
