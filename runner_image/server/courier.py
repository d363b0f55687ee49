"""Carries frames of the mailbox to the runner without a process for each.

An exchange is ordinary code to any server of the protocol: a two-line program that talks to the runner's socket and prints the
answer (`runner_image.exchange`). A turn runs it hundreds of times, and forking for it costs several milliseconds of two processors. So
this server knows exactly that program and does what it would do; anything else, and every difficulty, goes the ordinary way.
See docs/decisions/0008.
"""

import asyncio
import re
from pathlib import Path

_PROGRAM = re.compile(r"from runner_image\.exchange import main\nmain\('(FLLM1[AB]:[^'\"\\\s]*)'\)\n")
_MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Courier:
    """Knows the way to the runner's socket.

    Args:
        state: The folder of the server and the runner.
        timeout_seconds: Longest time one exchange may take.
    """

    def __init__(self, state: Path, timeout_seconds: float) -> None:
        self._socket = state / "runner.sock"
        self._timeout_seconds = timeout_seconds

    async def carry(self, code: str) -> str | None:
        """Return what the program would print, or None when it has to be executed: it is another one, or nobody answers."""
        found = _PROGRAM.fullmatch(code)
        if found is None:
            return None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._exchange(found[1].encode("ascii"))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, UnicodeError):
            return None  # an exchange may be repeated; as a program it also starts a runner that is not there

    async def _exchange(self, frame: bytes) -> str | None:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await writer.drain()
            length = int.from_bytes(await reader.readexactly(4), "big")
            return (await reader.readexactly(length)).decode("ascii") + "\n" if length <= _MAX_ANSWER_BYTES else None
        finally:
            writer.close()
