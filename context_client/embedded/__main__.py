"""Serve the embedded Context API alone, for several replicas of the service on one machine, until it is told to stop.

`CONTEXT_API_KEY=… python -m context_client.embedded --folder … --instance … [--host …] [--port …]`

Once it serves, it prints its address as one line.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from pydantic import SecretStr

from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes.limits import SandboxLimits
from context_client.sandboxes.local import LocalSandboxes, LocalSandboxSettings
from context_client.size import USUAL_SIZE, SandboxSize

KEY = "CONTEXT_API_KEY"
_LARGEST_HEAD_BYTES = 256 * 1024
_KEEP_ALIVE_SECONDS = 120  # above the minute for which clients keep idle connections: a close that crosses a request loses it


def main() -> int:
    """Serve as the command line says; the key comes from the environment, where other users of the machine do not see it."""
    parser = argparse.ArgumentParser(prog="context_client.embedded", description=__doc__)
    parser.add_argument("--folder", required=True, type=Path, help="where records and files are kept")
    parser.add_argument("--instance", required=True, help="the one instance id it serves")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one (default)")
    parser.add_argument(
        "--largest-sandbox",
        type=SandboxSize.from_header,
        default=SandboxSize(),
        metavar="JSON",
        help='what callers may ask for at most, such as {"cpus": 4, "memory_bytes": 4294967296}; also processes, disk_bytes; else as usual',
    )
    given = parser.parse_args()
    key = os.environ.get(KEY, "")
    if not key:
        sys.stderr.write(f"{KEY} is not set: give the key that callers have to send.\n")
        return 2
    largest = USUAL_SIZE.model_copy(update=given.largest_sandbox.model_dump(exclude_none=True))
    settings = EmbeddedSettings(folder=given.folder, instance_id=given.instance, api_key=SecretStr(key), largest_sandbox=largest)
    asyncio.run(_serve(settings, given.largest_sandbox, given.host, given.port))
    return 0


async def _serve(settings: EmbeddedSettings, most: SandboxSize, host: str, port: int) -> None:
    local = LocalSandboxSettings(limits=SandboxLimits().sized(SandboxLimits().size.within(most)))
    async with LocalSandboxes(local) as sandboxes, open_app(settings, providers={DEFAULT_PROVIDER_NAME: sandboxes}) as app:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http="h11",
            h11_max_incomplete_event_size=_LARGEST_HEAD_BYTES,  # the identity names every group of the user
            log_config=None,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=5,
        )
        await _Server(config).serve()


class _Server(uvicorn.Server):
    """A server that says where it listens, and returns when it is told to stop.

    uvicorn's own raises the signal again at its end, which would kill the process before its sandboxes are closed.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            sys.stdout.write(f"http://{self.config.host}:{port}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
