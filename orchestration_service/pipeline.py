"""A turn from acceptance to answer: plan → open → run → seal → collect → answer. Only this module knows the order."""

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from context_client import ContextClient
from orchestration_service.answering import compose
from orchestration_service.carrying import Carrier
from orchestration_service.collecting import Collected, collect
from orchestration_service.commands import Commands, read_command
from orchestration_service.conversations import check_profile, find_conversation, go_on_from, with_turn
from orchestration_service.errors import SandboxLost, SandboxUnavailable, ServiceError, TurnError
from orchestration_service.model_calls import Broker, ModelCalls
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.operations.board import StatusBoard
from orchestration_service.operations.conversation import Conversation
from orchestration_service.operations.model import AcceptedTurn, FinalStatus, OperationStore
from orchestration_service.planning import Continuing, Planned, SandboxLimits, make_plan
from orchestration_service.progress import Progress
from orchestration_service.pump import Pump
from orchestration_service.sessions import Session, SessionSettings, open_session
from orchestration_service.user_workspace import UserWorkspaces
from workflow_schemas.mailbox import Exchange
from workflow_schemas.manifest import RunManifest
from workflow_schemas.platform import CompletionResponse, failed_response
from workflow_schemas.receipt import Receipt, StepTime
from workflow_schemas.usage import Usage

logger = logging.getLogger(__name__)

_STOP_AFTER_SECONDS = 30.0
_GIVE_UP_AFTER_SECONDS = 90.0


class Pipeline:
    """Carries turns out, any number at a time, one after the other within a conversation."""

    def __init__(
        self,
        *,
        context: ContextClient,
        store: OperationStore,
        board: StatusBoard,
        broker: Broker,
        routes: ModelRoutes,
        session: SessionSettings,
        limits: SandboxLimits,
        describe_sandbox: Callable[[], str] = lambda: "",
    ) -> None:
        self._context = context
        self._store = store
        self._board = board
        self._broker = broker
        self._routes = routes
        self._session = session
        self._limits = limits
        self._describe_sandbox = describe_sandbox
        carrier = Carrier(context, session)
        self._commands = Commands(store, carrier)
        self._user_workspaces = UserWorkspaces(store, carrier)
        self._queues: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, turn: AcceptedTurn) -> None:
        """Carry a turn out and put its end on the board; nothing is raised but a cancellation and a store that fails."""
        operation = turn.operation
        course = _Course(turn)
        async with self._alone(turn):
            try:
                result = await self._turn(course)
            except TurnError as error:
                result = _failure(turn, str(error))
            except Exception as error:  # the user must get an answer and the board an end, whatever was overlooked; the log has the trace
                logger.exception("The turn %r failed unexpectedly.", operation.operation_id)
                text = "Something went wrong inside the service. The operator's log names it."
                result = _failure(turn, text, f"{type(error).__name__}: {error}")
            status: FinalStatus = "Failed" if result.is_error else "Completed"
            await self._board.finish(operation.operation_id, status, result, status_message="The turn has ended.")
            await self._tidy(course)

    @asynccontextmanager
    async def _alone(self, turn: AcceptedTurn) -> AsyncIterator[None]:
        """Let one turn of a conversation wait for the other."""
        conversation = (turn.operation.upn, turn.operation.conversation_id or turn.operation.operation_id)
        queue = self._queues[conversation]
        if queue.locked():
            self._board.publish(turn.operation.operation_id, "Waiting for the previous message of this conversation.")
        async with queue:
            yield
        if not queue.locked():
            self._queues.pop(conversation, None)

    async def _turn(self, course: "_Course") -> CompletionResponse:
        turn = course.turn
        operation_id = turn.operation.operation_id
        course.conversation = await find_conversation(self._store, turn.operation)
        if (command := read_command(turn.request.prompt)) is not None:
            return await self._commands.obey(command, turn, course.conversation)
        course.planned = self._plan(course)
        check_profile(course.conversation, course.planned)
        course.brought = await self._user_workspaces.begin(turn, course.conversation, course.planned)
        route = self._routes.route(course.planned, turn.operation.upn)
        await self._reached(operation_id, "open", "Opening a sandbox.", {"run_id": course.run_id})
        async with course.step("open"):
            course.session = session = await self._open(course)
        await self._reached(operation_id, "run", "", {"session_id": session.session_id})
        follower = _Follower(self._board, operation_id)
        course.pump = pump = Pump(
            course.run_id, session=session, log=self._store, call_model=lambda call: calls.answer(call), on_events=follower.take
        )
        calls = ModelCalls(
            broker=self._broker,
            route=route,
            # a call that outlives the turn must not end it as a model's fault: the runner's own deadline comes first
            ends_at=time.monotonic() + course.planned.plan.limits.hard_seconds + _STOP_AFTER_SECONDS,
            max_total_tokens=course.planned.properties.max_total_tokens,
            on_call=follower.called,
            on_text=follower.writing,
            on_spent=lambda: pump.post("stop", {"reason": "budget", "detail": "The token budget of the turn is spent."}),
        )
        async with course.step("run"):
            manifest = await _follow(pump, course.planned)
        manifest = _in_own_words(manifest, calls)
        await self._reached(operation_id, "collect", "", {"end_reason": manifest.end_reason})
        await follower.take([{"type": "progress", "at": time.time(), "step": "collect", "message": "Collecting the files."}])
        async with course.step("collect"):
            collected = await _collect(session, manifest, course.planned)
        if turn.operation.conversation_id:
            kept = with_turn(course.conversation, turn.operation, course.planned, manifest, collected.files, session.session_id)
            kept = await self._store.save_conversation(kept)
            course.remarks = await self._user_workspaces.keep(turn, kept, course.planned)
        receipt = course.receipt(manifest, collected, calls.usage, self._describe_sandbox())
        await self._store.record_step(operation_id, "answer", {"receipt": receipt.model_dump(mode="json")})
        return compose(turn.request, operation_id, course.planned, manifest, receipt)

    async def _open(self, course: "_Course") -> Session:
        """Open the conversation's sandbox and fill it; find out whether it still holds what the last turn has left."""
        turn = course.turn
        session = await open_session(
            self._context,
            turn.identity,
            agent_name=turn.request.agent.name,
            conversation_id=turn.request.session_id or turn.operation.operation_id,
            settings=self._session,
        )
        live = await self._still_ours(course, session)
        if (continuing := go_on_from(course.conversation, live=live) or course.brought) is not None:
            course.planned = self._plan(course, continuing)
        await session.fill(course.planned.uploads)
        return session

    async def _tidy(self, course: "_Course") -> None:
        """After the answer is out: let the runner forget the run, and drop the messages. Losing this loses nothing."""
        try:
            if course.pump is not None:
                await course.pump.release()
            await self._store.forget_messages(course.run_id)
        except ServiceError as error:
            logger.warning("The run %r was not tidied up: %s", course.run_id, error)

    def _plan(self, course: "_Course", continuing: Continuing | None = None) -> Planned:
        turn = course.turn
        number = turn.operation.turn_number
        return make_plan(turn.request, run_id=course.run_id, turn_number=number, limits=self._limits, continuing=continuing)

    async def _still_ours(self, course: "_Course", session: Session) -> bool:
        """Whether the sandbox behind the session is the one this conversation's last turn has left."""
        mark = course.conversation.sandbox if course.conversation else None
        if mark is None or mark.session_id != session.session_id:
            return False
        reply = await session.exchange(Exchange(run_id=course.run_id))
        return reply.generation == mark.generation

    async def _reached(self, operation_id: str, step: str, message: str, data: dict[str, Any]) -> None:
        await self._store.record_step(operation_id, step, data)
        if message:
            await self._board.append_events(operation_id, [{"type": "progress", "at": time.time(), "step": step, "message": message}])
            self._board.publish(operation_id, message)


class _Course:
    """What becomes known of a turn while it is carried out."""

    planned: Planned
    session: Session

    def __init__(self, turn: AcceptedTurn) -> None:
        self.turn = turn
        self.run_id = uuid.uuid4().hex
        self.pump: Pump | None = None
        self.conversation: Conversation | None = None
        self.brought: Continuing | None = None
        self.remarks: tuple[str, ...] = ()
        self._started = time.monotonic()
        self._steps: list[StepTime] = []

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Measure a step."""
        since = time.monotonic()
        try:
            yield
        finally:
            self._steps.append(StepTime(step=name, seconds=round(time.monotonic() - since, 4)))

    def receipt(self, manifest: RunManifest, collected: Collected, usage: Usage, sandbox: str) -> Receipt:
        """Return the receipt of the turn as it stands."""
        return Receipt(
            operation_id=self.turn.operation.operation_id,
            turn_number=self.turn.operation.turn_number,
            end_reason=manifest.end_reason,
            detail=manifest.detail,
            began=manifest.began,
            seal=manifest.seal,
            sandbox="; ".join(part for part in (sandbox, manifest.wall) if part),
            usage=usage,
            seconds=round(time.monotonic() - self._started, 4),
            steps=tuple(self._steps),
            exchanges=self.session.exchanges,
            mailbox_bytes_in=self.session.bytes_in,
            mailbox_bytes_out=self.session.bytes_out,
            patch_proven=manifest.patch.proven if manifest.patch else None,
            processes_left=manifest.processes_left,
            files=collected.files,
            lost=collected.lost,
            remarks=(*self.planned.remarks, *manifest.remarks, *self.remarks),
        )


class _Follower:
    """Shows one turn's activity while it runs."""

    def __init__(self, board: StatusBoard, operation_id: str) -> None:
        self._board = board
        self._operation_id = operation_id
        self._progress = Progress()

    async def take(self, events: list[dict[str, Any]]) -> None:
        """Take events of the runner."""
        for event in events:
            self._progress.take(event)
        await self._board.append_events(self._operation_id, events)
        self._show()

    async def called(self, event: dict[str, Any], usage: Usage) -> None:
        """Take the answer of a model call."""
        progress = self._progress
        progress.model_calls = usage.model_calls
        progress.prompt_tokens, progress.completion_tokens = usage.prompt_tokens, usage.output_tokens
        await self._board.append_events(self._operation_id, [event])
        self._show()

    def writing(self, text: str | None) -> None:
        """Take text the model is writing."""
        self._progress.write(text)
        self._show()

    def _show(self) -> None:
        progress = self._progress
        self._board.publish(
            self._operation_id, progress.text(), prompt_tokens=progress.prompt_tokens, completion_tokens=progress.completion_tokens
        )


def _in_own_words(manifest: RunManifest, calls: ModelCalls) -> RunManifest:
    """Say what was wrong with the model; the CLI knows only the relay inside the sandbox and blames that."""
    if manifest.end_reason == "model_error" and calls.failure:
        return manifest.model_copy(update={"detail": calls.failure, "answer": ""})
    return manifest


async def _follow(pump: Pump, planned: Planned) -> RunManifest:
    """Follow the run to its end; when the sandbox does not keep the deadline by itself, the service does.

    Raises:
        SandboxUnavailable: The runner did not take the run.
    """
    hard = planned.plan.limits.hard_seconds

    async def guard() -> None:
        await asyncio.sleep(hard + _STOP_AFTER_SECONDS)
        await pump.post("stop", {"reason": "deadline", "detail": f"The time limit of {hard:.0f} s was reached."})

    await pump.post("start", {"plan": planned.plan.model_dump(mode="json")})
    watching = asyncio.create_task(guard())
    try:
        async with asyncio.timeout(hard + _GIVE_UP_AFTER_SECONDS):
            return await pump.follow()
    except TimeoutError:
        return _lost(planned, "The sandbox did not end the turn in time.")
    except SandboxLost as error:
        return _lost(planned, str(error))
    finally:
        watching.cancel()


def _lost(planned: Planned, detail: str) -> RunManifest:
    return RunManifest(
        run_id=planned.plan.run_id, turn_number=planned.plan.turn_number, end_reason="sandbox_lost", detail=detail, generation=""
    )


async def _collect(session: Session, manifest: RunManifest, planned: Planned) -> Collected:
    """Collect what there is; outputs that cannot be had are named, the answer is given all the same."""
    if manifest.end_reason == "sandbox_lost":
        return Collected(files=(), lost=("the workspace of this turn: the sandbox is gone",))
    try:
        return await collect(session, manifest, planned.plan.output_stem)
    except SandboxUnavailable as error:
        return Collected(files=(), lost=tuple(f"{output.name}: {error}" for output in manifest.outputs))


def _failure(turn: AcceptedTurn, text: str, reason: str | None = None) -> CompletionResponse:
    return failed_response(
        turn.operation.operation_id,
        text,
        user_prompt=turn.request.user_prompt,
        agent_name=turn.request.agent.name,
        errors=[reason or text],
    )
