"""The operation store as one turn writes to it: everything under the turn's claim, so that a turn taken over writes no more.

A store that is busy or away for a moment must not cost a paid answer of the model: writes that may be repeated are repeated for a while.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestration_service.errors import StoreError, StoreFull
from orchestration_service.operations import Claim, Conversation, EffectState, FinalStatus, OperationStore, StatusBoard
from orchestration_service.operations.model import Direction, StoredEvent
from workflow_schemas.platform import CompletionResponse

T = TypeVar("T")

_PAUSES: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_PAGE = 500


@dataclass(frozen=True)
class Done:
    """What came of an effect."""

    outcome: dict[str, Any]
    """Its outcome, now or at an earlier time."""

    maybe_twice: bool
    """Somebody had begun it and left no outcome: it may have happened before as well."""


class Ledger:
    """Writes of one turn.

    Args:
        store: Where they go.
        board: Shows them; the end and the activity go through it.
        operation_id: The operation of the turn.
        claim: Ours on it; None where nobody else can have it.
    """

    def __init__(self, store: OperationStore, board: StatusBoard, operation_id: str, claim: Claim | None) -> None:
        self._store = store
        self._board = board
        self._operation_id = operation_id
        self.claim = claim

    async def record_step(self, step: str, data: dict[str, Any]) -> None:
        """Add a line to the journal."""
        await self._store.record_step(self._operation_id, step, data, self.claim)

    async def record_call(self, data: dict[str, Any]) -> None:
        """Add a model call that did not come through the mailbox to the journal; it may stand there twice, under one identifier."""
        await _patiently(lambda: self._store.record_step(self._operation_id, "model_call", data, self.claim))

    async def record_messages(self, run_id: str, direction: Direction, messages: Sequence[tuple[int, str, bytes]]) -> int:
        """Keep mailbox messages; a number that is known stays as it is."""
        return await _patiently(lambda: self._store.record_messages(run_id, direction, messages, self.claim))

    async def append_events(self, events: Sequence[dict[str, Any]]) -> None:
        """Add to the activity log."""
        await self._board.append_events(self._operation_id, events, self.claim)

    async def events(self) -> list[dict[str, Any]]:
        """Return the whole activity log."""
        found: list[StoredEvent] = []
        while page := await self._store.events(self._operation_id, found[-1].sequence if found else 0, _PAGE):
            found += page
        return [one.event for one in found]

    async def save_conversation(self, conversation: Conversation) -> Conversation:
        """Save a conversation if nobody has since it was read.

        Raises:
            ConversationChanged: Somebody has.
        """
        return await self._store.save_conversation(conversation, self.claim)

    async def finish(self, status: FinalStatus, result: CompletionResponse, *, adopt: bool = False) -> None:
        """Store and show the end."""
        text = "The turn has ended."
        await _patiently(lambda: self._board.finish(self._operation_id, status, result, status_message=text, adopt=adopt, claim=self.claim))

    async def once(self, name: str, effect: Callable[[], Awaitable[dict[str, Any]]]) -> Done:
        """Do something once, whoever does it; what was done by an earlier owner of the turn is not done again."""
        before: EffectState = await _patiently(lambda: self._store.begin_effect(self._operation_id, name, self.claim))
        if before.outcome is not None:
            return Done(before.outcome, maybe_twice=False)
        outcome = await effect()
        after = await _patiently(lambda: self._store.end_effect(self._operation_id, name, outcome, self.claim))
        return Done(after.outcome or outcome, maybe_twice=before.state == "begun")


async def _patiently(write: Callable[[], Awaitable[T]]) -> T:
    since = time.monotonic()
    for pause in _PAUSES:
        try:
            return await write()
        except StoreFull:
            raise
        except StoreError:
            if time.monotonic() - since > sum(_PAUSES):
                raise
        await asyncio.sleep(pause)
    return await write()
