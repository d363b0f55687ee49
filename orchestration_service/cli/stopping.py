"""A server whose process ends in order: turns are handed over only if what owns them is closed, and a signal must not come before that."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from orchestration_service.vitals import Vitals


class StoppingServer(uvicorn.Server):
    """Serves until SIGTERM or Ctrl+C, and then returns.

    uvicorn's own server raises the signal again when it has ended, and that kills the process before anything else could be closed.

    Args:
        config: How to serve.
        vitals: Are told when requests are answered and when that ends.
        drain_seconds: How long requests are still answered after SIGTERM.
    """

    def __init__(self, config: uvicorn.Config, *, vitals: Vitals, drain_seconds: float = 0) -> None:
        super().__init__(config)
        self.interrupted = False
        """Whether a person ended it, with Ctrl+C."""
        self._vitals = vitals
        self._drain_seconds = drain_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._vitals.serving()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take both signals; a second SIGTERM, once serving has ended, kills."""
        loop = asyncio.get_running_loop()
        takers = {signal.SIGTERM: self._drain, signal.SIGINT: self._interrupt}
        before = {number: signal.getsignal(number) for number in takers}
        for number, taker in takers.items():
            loop.add_signal_handler(number, taker)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _drain(self) -> None:
        self._vitals.draining()
        asyncio.get_running_loop().call_later(self._drain_seconds, self._end)

    def _end(self) -> None:
        self.should_exit = True

    def _interrupt(self) -> None:
        self._vitals.draining()
        self.force_exit = self.interrupted
        self.interrupted = True
        self._end()
