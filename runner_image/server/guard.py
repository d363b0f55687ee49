"""HTTP on a Unix socket for those who may connect: nothing is read from anybody else (see `runner_image.strangers`)."""

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from runner_image.strangers import is_stranger


class GuardedProtocol(H11Protocol):
    """HTTP for those who may connect; nothing is read from the others."""

    deepest = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: list[bytes] | None = None

    def connection_made(self, transport: Any) -> None:
        """Have the other side looked at before its first byte is read."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            self._held = []
            transport.pause_reading()
            self._looking = asyncio.ensure_future(self._look(transport, connection))

    def data_received(self, data: bytes) -> None:
        """Keep what comes before the look: early versions of Python 3.11 forget a pause that is asked for on connecting."""
        if self._held is None:
            super().data_received(data)
        else:
            self._held.append(data)
            self.transport.pause_reading()

    async def _look(self, transport: Any, connection: Any) -> None:
        if await asyncio.to_thread(is_stranger, connection, deepest=self.deepest):
            transport.abort()
            return
        held, self._held = self._held or [], None
        for data in held:
            super().data_received(data)
        transport.resume_reading()


class ModelProtocol(GuardedProtocol):
    """HTTP for the agent's CLI, and not for the commands it runs."""

    deepest = 1
