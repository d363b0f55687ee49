"""Reads what an execution prints, without ever holding more than the cap.

Pipes rather than files, so that the output of subprocesses is captured too and a flood costs no disk; the pipe is read
to the end of the execution and no further, because a background process may hold its other end open for hours.
"""

import asyncio
import os

_CHUNK_BYTES = 64 * 1024
_LAST_LOOK_BYTES = 2 * 1024 * 1024  # more than a pipe can hold; bounds the last read against a process still writing


class Capture:
    """The reading end of one stream of one execution."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        self._name = name
        self._limit = limit_bytes
        self._chunks: list[bytes] = []
        self._kept = 0
        self._dropped = 0
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        """`writer` is the end that goes to the execution; close it with `hand_over` when it went."""
        os.set_blocking(self._reader, False)
        self._open = True
        self._loop.add_reader(self._reader, self._read)

    def hand_over(self) -> None:
        """Close our copy of the writing end."""
        os.close(self.writer)

    def finish(self) -> str:
        """Take what is in the pipe now, close it, and return the text with a note if something was dropped."""
        before = self._kept + self._dropped
        while self._open and self._kept + self._dropped - before < _LAST_LOOK_BYTES and self._read():
            pass
        self.close()
        text = b"".join(self._chunks).decode("utf-8", "replace")
        if self._dropped:
            text += f"\n[{self._name} was cut: {self._limit} bytes are kept, {self._dropped} more were dropped]\n"
        return text

    def close(self) -> None:
        """Stop reading."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._reader)
            os.close(self._reader)

    def _read(self) -> bool:
        try:
            chunk = os.read(self._reader, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        wanted = chunk[: max(0, self._limit - self._kept)]
        if wanted:
            self._chunks.append(wanted)
        self._kept += len(wanted)
        self._dropped += len(chunk) - len(wanted)
        return True
