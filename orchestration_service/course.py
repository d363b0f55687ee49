"""One turn while it is carried out: what becomes known of it, and what people see of it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from orchestration_service.collecting import Collected
from orchestration_service.journal import Past, fresh
from orchestration_service.ledger import Ledger
from orchestration_service.letters import ModelRequest
from orchestration_service.model_calls import ModelCalls
from orchestration_service.operations import AcceptedTurn, Conversation, StatusBoard
from orchestration_service.planning import Planned
from orchestration_service.progress import Progress
from orchestration_service.pump import Pump
from orchestration_service.replay import Replayed
from orchestration_service.sessions import Session
from workflow_schemas.manifest import RunManifest
from workflow_schemas.receipt import Receipt, StepTime
from workflow_schemas.usage import Usage


class Course:
    """What becomes known of a turn while it is carried out.

    Args:
        turn: The turn.
        ledger: Writes for it.
        late: Whether the turn was given up before, and only what comes late is collected.
    """

    planned: Planned
    session: Session

    def __init__(self, turn: AcceptedTurn, ledger: Ledger, *, late: bool = False) -> None:
        self.turn = turn
        self.ledger = ledger
        self.late = late
        self.past = fresh()
        self.replayed: Replayed | None = None
        self.pump: Pump | None = None
        self.conversation: Conversation | None = None
        self.remarks: tuple[str, ...] = ()
        self.may_answer = False
        self.sandbox = ""
        """Marker of the sandbox that still holds what the last turn has left, if there is one: only there may the run start."""
        self.begun_anew = 0
        self.called_directly: tuple[tuple[ModelRequest, dict[str, Any] | None], ...] = ()
        """The latest model calls that did not come through the mailbox, with their answers."""
        self._begun = time.monotonic()
        self.seconds_before = 0.0
        self._steps: list[StepTime] = []

    @property
    def run_id(self) -> str:
        """The run in the sandbox."""
        return self.past.run_id

    @property
    def seconds(self) -> float:
        """How long the turn has been going on, earlier owners included."""
        return self.seconds_before + time.monotonic() - self._begun

    def take_up(self, past: Past, replayed: Replayed | None) -> None:
        """Go on from what earlier owners have recorded, and from what the run has said."""
        self.past, self.replayed = past, replayed
        if replayed is not None:
            for note in past.calls:
                replayed.charges += note.charges
                replayed.remarks += note.remarks
                replayed.failure = note.failure or replayed.failure
        self.remarks = past.remarks(len(replayed.waiting) if replayed and replayed.manifest is None else 0)
        self.remarks += past.opened.remarks if past.opened else ()
        if past.started_at is not None:
            self.seconds_before = max(0.0, (datetime.now(UTC) - past.started_at).total_seconds())

    def begin_anew(self) -> None:
        """Forget a run that never started. The next one has another name: under the old one, another plan is stored."""
        self.past, self.replayed = fresh(), None
        self.begun_anew += 1

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Measure a step."""
        since = time.monotonic()
        try:
            yield
        finally:
            self._steps.append(StepTime(step=name, seconds=round(time.monotonic() - since, 4)))

    def receipt(self, manifest: RunManifest, collected: Collected, calls: ModelCalls, sandbox: str) -> Receipt:
        """Return the receipt of the turn as it stands."""
        spending, ways = calls.spending, [way for way, count in calls.ways.items() if count]
        return Receipt(
            operation_id=self.turn.operation.operation_id,
            turn_number=self.turn.operation.turn_number,
            end_reason=manifest.end_reason,
            detail=manifest.detail,
            began=manifest.began,
            seal=manifest.seal,
            sandbox=sandbox,
            wall=manifest.wall,
            minimum_wall=self.planned.plan.minimum_wall,
            usage=spending.usage,
            models=spending.models,
            cost=spending.cost,
            currency=spending.currency,
            prices=spending.prices,
            seconds=round(self.seconds, 4),
            steps=tuple(self._steps),
            model_access="mixed" if len(ways) > 1 else (ways or ["mailbox"])[0],
            exchanges=self.session.exchanges,
            mailbox_bytes_in=self.session.bytes_in,
            mailbox_bytes_out=self.session.bytes_out,
            patch_proven=manifest.patch.proven if manifest.patch else None,
            processes_left=manifest.processes_left,
            files=collected.files,
            lost=collected.lost,
            remarks=(*self.planned.remarks, *manifest.remarks, *self.remarks, *collected.remarks),
        )


class Follower:
    """Shows one turn's activity while it runs."""

    def __init__(self, board: StatusBoard, ledger: Ledger, operation_id: str) -> None:
        self._board = board
        self._ledger = ledger
        self._operation_id = operation_id
        self._progress = Progress()
        self._held: list[dict[str, Any]] = []

    async def take_up(self, past: Replayed) -> None:
        """Show what an earlier owner has shown, and add the runner's events that it had stored and no more time to show.

        They were shown in order, so those that are missing are the last ones.
        """
        logged = await self._ledger.events()
        for event in logged:
            self._progress.take(event)
        shown = 0
        for event in logged:
            if shown < len(past.events) and _same(event, past.events[shown]):
                shown += 1
        self._count(past.usage)
        if past.events[shown:]:
            await self.take(past.events[shown:])

    async def take(self, events: list[dict[str, Any]]) -> None:
        """Take events of the runner."""
        for event in events:
            self._progress.take(event)
        held = len(self._held)
        await self._ledger.append_events([*self._held, *events])
        del self._held[:held]
        self._show()

    def called(self, event: dict[str, Any], usage: Usage) -> None:
        """Take the answer of a model call. It is logged with what the agent does next: the answer itself need not wait for that."""
        self._count(usage)
        self._held.append(event)
        self._show()

    def writing(self, text: str | None) -> None:
        """Take text the model is writing."""
        self._progress.write(text)
        self._show()

    def wait(self, text: str) -> None:
        """Say what the turn waits for, until something happens again."""
        self._show(waiting=text)

    def _count(self, usage: Usage) -> None:
        progress = self._progress
        progress.model_calls = usage.model_calls
        progress.prompt_tokens, progress.completion_tokens = usage.prompt_tokens, usage.output_tokens

    def _show(self, waiting: str = "") -> None:
        progress = self._progress
        progress.waiting = waiting
        self._board.publish(
            self._operation_id, progress.text(), prompt_tokens=progress.prompt_tokens, completion_tokens=progress.completion_tokens
        )


def _same(logged: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether an event of the log is this one; the log has numbered it."""
    return {**logged, "seq": 0} == {**event, "seq": 0}
