"""The answer to one model call on its way out, for a caller that takes it while it comes.

The first events of a stream say nothing of the answer. They are held back until something of it comes, so a model that fails before that is
asked again, or another one in its place, and the caller sees one whole answer. The last event is left to whoever knows that the call is
written down: before it the agent makes no other call.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from orchestration_service.brokers.call import JsonObject, ModelAnswer, usage_of
from workflow_schemas.model_stream import encode_event, error_body
from workflow_schemas.usage import Usage

LEFT = 499
"""Status of a call whose caller has left."""

_CONTENT = frozenset({"content_block_delta", "content_block_stop", "message_delta"})
_MOST_HELD_BYTES = 8 * 1024 * 1024


class AnswerStream:
    """Takes the events of a call's streams and gives out bytes.

    Args:
        passes: Whether anything is to be passed on; otherwise only what is used is counted.
        most_held_bytes: How much may wait for a caller that does not take it; beyond that the caller counts as gone.
    """

    def __init__(self, *, passes: bool = True, most_held_bytes: int = _MOST_HELD_BYTES) -> None:
        self.passes = passes
        self._most_held_bytes = most_held_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_out = self._is_done = False
        self._changed = asyncio.Event()
        self._left = asyncio.Event()
        self._usage: JsonObject = {}
        self._lost = Usage()

    @property
    def is_out(self) -> bool:
        """Whether something of the answer has been given out, or is about to be."""
        return self._is_out

    @property
    def is_left(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._left.is_set()

    @property
    def is_over(self) -> bool:
        """Whether there can be no other answer than the one that was begun."""
        return self.is_out or self.is_left

    @property
    def used(self) -> Usage:
        """What the streams since the last `begin` are known to have used."""
        return self._lost.plus(usage_of(self._usage)) if self._usage else self._lost

    def begin(self) -> None:
        """Count anew: another model is asked."""
        self._usage, self._lost = {}, Usage()

    def take(self, event: JsonObject) -> None:
        """Take an event that fits to those before it."""
        kind = event["type"]
        if kind == "message_start":
            self._lost, self._usage = self.used, dict(event["message"].get("usage") or {})
        elif kind == "message_delta":
            self._usage |= {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
        if self.passes and not self.is_left:
            self._hold(kind, event)

    async def piece(self) -> bytes:
        """Return the next bytes for the caller; none when nothing more comes, but for the end."""
        while not (self._is_out and self._held) and not self._is_done:
            self._changed.clear()
            await self._changed.wait()
        piece = b"".join(self._held) if self._is_out else b""
        self._held, self._held_bytes = [], 0
        return piece

    def end(self) -> None:
        """Say that no event comes any more."""
        self._is_done = True
        self._changed.set()

    def leave(self) -> None:
        """Say that nobody waits for the answer any more."""
        self._left.set()
        self.end()

    async def while_wanted(self, asking: Coroutine[Any, Any, ModelAnswer]) -> ModelAnswer:
        """Ask until there is an answer or nobody waits for it; what was used until then is told either way."""
        task, left = asyncio.create_task(asking), asyncio.create_task(self._left.wait())
        try:
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            error = error_body("api_error", "nobody waits for this answer any more")
            return ModelAnswer(LEFT, "cut", error=error, lost_usage=self.used)
        finally:
            task.cancel()
            left.cancel()
            await asyncio.gather(task, left, return_exceptions=True)

    def _hold(self, kind: str, event: JsonObject) -> None:
        if kind == "message_start":
            self._held, self._held_bytes = [], 0
        if kind == "message_stop":
            return
        self._held.append(encode_event(event))
        self._held_bytes += len(self._held[-1])
        self._is_out = self._is_out or kind in _CONTENT
        if self._held_bytes > self._most_held_bytes:
            self.leave()
        elif self._is_out:
            self._changed.set()
