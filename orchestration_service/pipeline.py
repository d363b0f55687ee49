"""A turn from acceptance to answer: plan → open → run → seal → collect → answer. Only this module knows the order.

Each step is written down before it takes effect, so a turn can be taken over at any of them: what is known is used, and only what is
missing is done. See docs/decisions/0011.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from context_client import ContextClient
from orchestration_service.answering import compose
from orchestration_service.carrying import Carrier, with_older_inputs
from orchestration_service.collecting import Collected, collect
from orchestration_service.commands import Commands, read_command
from orchestration_service.conversations import check_profile, find_conversation, go_on_from
from orchestration_service.course import Course, Follower
from orchestration_service.errors import LeaseLost, SandboxLost, SandboxUnavailable, ServiceError, StoreError, TurnError, TurnUnreadable
from orchestration_service.fallbacks import Turnout
from orchestration_service.following import STOP_AFTER_SECONDS, follow, seconds_left
from orchestration_service.journal import Opened, read_past
from orchestration_service.keeping import keep_turn
from orchestration_service.ledger import Ledger
from orchestration_service.letters import ModelReply, ModelRequest, Nonsense
from orchestration_service.model_access import ModelAccess
from orchestration_service.model_calls import Broker, ModelCalls
from orchestration_service.model_routes import ModelRoutes, TurnRoutes
from orchestration_service.operations import AcceptedTurn, Claim, OperationStore, StatusBoard
from orchestration_service.operations.model import FinalStatus
from orchestration_service.planning import Continuing, Planned, SandboxLimits, make_plan
from orchestration_service.prices import PriceTable, shipped_prices
from orchestration_service.pump import Pump
from orchestration_service.replay import Replayed, replay
from orchestration_service.salvage import salvage
from orchestration_service.sessions import Fetched, Session, SessionSettings, open_session
from orchestration_service.sizing import size_remarks
from orchestration_service.spending import Spending
from orchestration_service.user_workspace import UserWorkspaces
from orchestration_service.waiting import WaitingRoom
from orchestration_service.walls import explain_refusal, unkept_demand
from workflow_schemas.mailbox import Exchange
from workflow_schemas.manifest import RunManifest
from workflow_schemas.model_stream import error_body
from workflow_schemas.platform import CompletionResponse, failed_response
from workflow_schemas.receipt import Receipt

logger = logging.getLogger(__name__)

_USUAL_OPENING_SECONDS = 60.0
_MOST_BEGINNINGS = 3
_LATE = "The sandbox had stopped answering, and this result came late: it takes the place of the failure that was told before."


class Pipeline:
    """Carries turns out, any number at a time. Whose turn it is, is decided before."""

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
        prices: PriceTable | None = None,
        describe_sandbox: Callable[[], str] = lambda: "",
        patience_seconds: float = 45.0,
        waiting: WaitingRoom | None = None,
        access: ModelAccess | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._board = board
        self._broker = broker
        self._routes = routes
        self._session = session
        self._limits = limits
        self._prices = prices or shipped_prices()
        self._describe_sandbox = describe_sandbox
        self._patience_seconds = patience_seconds
        self._waiting = waiting or WaitingRoom()
        self._access = access or ModelAccess()
        self._carrier = carrier = Carrier(context, session)
        self._commands = Commands(store, carrier)
        self._user_workspaces = UserWorkspaces(store, carrier)

    async def run(self, turn: AcceptedTurn, claim: Claim | None = None, *, resumed: bool = False, late: bool = False) -> bool:
        """Carry a turn out and put its end on the board.

        Args:
            turn: The turn.
            claim: Ours on its operation; every write carries it.
            resumed: Whether somebody may have worked on it before: then it goes on where the journal ends.
            late: Whether it was given up before; only a result that came late ends it now.

        Returns:
            Whether its sandbox did not answer and may still have a result.

        Raises:
            LeaseLost: Somebody else has the turn; nothing more was written.
            StoreError: The store fails; the turn can be resumed.
        """
        course = Course(turn, Ledger(self._store, self._board, turn.operation.operation_id, claim), late=late)
        try:
            if resumed:
                await self._take_up(course)
            result = await self._turn(course)
        except (LeaseLost, StoreError):
            raise
        except TurnError as error:
            if late:
                return isinstance(error, SandboxLost) and error.may_answer
            result = _failure(turn, str(error))
        except Exception as error:  # the user must get an answer and the board an end, whatever was overlooked; the log has the trace
            logger.exception("The turn %r failed unexpectedly.", turn.operation.operation_id)
            if late:
                return False
            text = "Something went wrong inside the service. The operator's log names it."
            result = _failure(turn, text, f"{type(error).__name__}: {error}")
        status: FinalStatus = "Failed" if result.is_error else "Completed"
        await course.ledger.finish(status, result, adopt=late)
        if not course.may_answer:
            await self._tidy(course)
        return course.may_answer

    async def _take_up(self, course: Course) -> None:
        """Read what earlier owners of the turn have left, and note that and where it was taken over.

        Raises:
            TurnUnreadable: It makes no sense, or the turn is found at the same place time and again.
        """
        operation_id = course.turn.operation.operation_id
        past = read_past(await self._store.steps(operation_id))
        replayed = await self._replayed(past.run_id) if past.opened else None
        course.take_up(past, replayed)
        effects = await self._store.effects(operation_id)
        ended = sum(effect.state == "ended" for effect in effects.values())
        heard, said = (replayed.seen, len(replayed.sent)) if replayed else (0, 0)
        place = f"{sorted(past.reached - {'resume'})} {heard} {said} {ended}"
        await course.ledger.record_step("resume", {"place": place})
        if past.is_stuck(place):
            raise TurnUnreadable(
                "The service was interrupted at the same place again and again while it worked on this message, so it has given up. "
                "Files saved by earlier messages are still there. Please send the message again."
            )

    async def _replayed(self, run_id: str) -> Replayed:
        heard, said = await self._store.messages(run_id, "out"), await self._store.messages(run_id, "in")
        try:
            return await asyncio.to_thread(replay, run_id, heard, said)
        except Nonsense as error:
            raise TurnUnreadable(f"The service was interrupted, and cannot go on from what it had stored: {error}.") from error

    async def _turn(self, course: Course) -> CompletionResponse:
        turn = course.turn
        course.conversation = await find_conversation(self._store, turn.operation)
        if (command := read_command(turn.request.prompt)) is not None:
            return await self._commands.obey(command, turn, course.conversation, course.ledger.claim)
        course.planned = self._plan(course, course.past.opened.continuing if course.past.opened else None)
        check_profile(course.conversation, course.planned)
        follower = Follower(self._board, course.ledger, turn.operation.operation_id)
        routes = await self._routes.of_turn(course.planned, turn.operation.upn)
        manifest, calls = await self._run(course, follower, routes)
        if course.late:
            if manifest.end_reason == "sandbox_lost":
                raise SandboxLost(manifest.detail, may_answer=course.may_answer)
            course.remarks += (_LATE,)
        if "collect" not in course.past.reached:
            await course.ledger.record_step("collect", {"end_reason": manifest.end_reason})
            await follower.take([{"type": "progress", "at": time.time(), "step": "collect", "message": "Collecting the files."}])
        async with course.step("collect"):
            collected = await self._collect(course, manifest)
        manifest = _in_own_words(manifest, calls, course.planned)  # not before: what was stored is held against the runner's own words
        course.remarks += unkept_demand(manifest, course.planned)
        if turn.operation.conversation_id:
            kept = await keep_turn(course, self._store, manifest, collected.files)
            course.remarks += await self._user_workspaces.keep(turn, kept, course.planned, course.ledger.claim)
        receipt = await self._receipt(course, manifest, collected, calls)
        return compose(turn.request, turn.operation.operation_id, course.planned, manifest, receipt)

    async def _run(self, course: Course, follower: Follower, routes: TurnRoutes) -> tuple[RunManifest, ModelCalls]:
        """Run the turn in its sandbox, or take its run up; a run that turns out never to have started is begun anew."""
        while True:
            with ExitStack() as until_ended:

                def listen(session_id: str, stack: ExitStack = until_ended) -> None:
                    stack.enter_context(self._waiting.listening(course.turn.identity.upn, session_id, follower.wait))

                async with course.step("open"):
                    opening = self._reopened if course.past.opened else self._opened
                    course.session = await opening(course, listen)
                past = course.replayed or Replayed()
                if course.replayed is not None:
                    await follower.take_up(past)
                calls = self._calls(course, follower, routes, past)
                course.pump = pump = self._pump(course, follower, calls, past)
                async with course.step("run"), self._access.granted(course, calls) as grant:
                    manifest = await follow(course, pump, grant.body if grant else None)
            if manifest is not None:
                return manifest, calls
            course.begin_anew()
            course.planned = self._plan(course)

    def _pump(self, course: Course, follower: Follower, calls: ModelCalls, past: Replayed) -> Pump:
        return Pump(
            course.run_id,
            session=course.session,
            log=course.ledger,
            call_model=_over if course.late else calls.answer,
            on_events=follower.take,
            expected=course.sandbox,
            past=past,
            patience_seconds=self._patience_seconds,
        )

    def _calls(self, course: Course, follower: Follower, routes: TurnRoutes, past: Replayed) -> ModelCalls:
        async def stop() -> None:
            if course.pump is not None:
                await course.pump.post("stop", {"reason": "budget", "detail": "The token budget of the turn is spent."})

        return ModelCalls(
            broker=self._broker,
            models=Turnout(routes, course.planned.plan.model, course.planned.plan.small_model),
            spending=Spending(routes.all, self._prices, past.charges),
            # a call that outlives the turn must not end it as a model's fault: the runner's own deadline comes first
            ends_at=time.monotonic() + seconds_left(course, STOP_AFTER_SECONDS),
            max_total_tokens=course.planned.properties.max_total_tokens,
            on_call=follower.called,
            on_text=follower.writing,
            on_spent=stop,
            failure=past.failure,
            ways=Counter({"mailbox": len(past.called), "direct": len(course.past.calls)}),
            remarks=list(dict.fromkeys((*routes.remarks, *past.remarks))),
        )

    async def _opened(self, course: Course, listen: Callable[[str], None]) -> Session:
        """Open the conversation's sandbox and fill it; find out whether it still holds what the last turn has left."""
        turn = course.turn
        brought = await self._user_workspaces.begin(turn, course.conversation, course.planned)
        course.remarks += brought.remarks
        await course.ledger.record_step("open", {"run_id": course.run_id})
        await self._say(course, "open", "Opening a sandbox.")
        session = await open_session(
            self._context,
            turn.identity,
            agent_name=turn.request.agent.name,
            conversation_id=turn.request.session_id or turn.operation.operation_id,
            settings=self._session,
            size=course.planned.size,
        )
        listen(session.session_id)
        course.sandbox = await self._still_ours(course, session)
        continuing = go_on_from(course.conversation, live=bool(course.sandbox)) or brought.continuing
        if (continuing := await with_older_inputs(self._carrier, turn, course.conversation, continuing)) is not None:
            course.planned = self._plan(course, continuing)
        await session.fill(course.planned.uploads)
        remarks = size_remarks(course.planned.size, session.size)
        if (waited := course.seconds - _USUAL_OPENING_SECONDS) > 0:  # for room, mostly; the platform's own limit counts that too
            course.planned = self._plan(course, continuing, waited)
            left = course.planned.plan.limits.hard_seconds
            remarks += (f"This turn waited {waited:.0f} s longer than usual for its sandbox; {left:.0f} s were left for its work.",)
        course.remarks = tuple(dict.fromkeys(course.remarks + remarks))
        opened = Opened.after(session.session_id, session.upload_id, continuing, remarks)
        await course.ledger.record_step("run", opened.model_dump(mode="json"))
        return session

    async def _reopened(self, course: Course, listen: Callable[[str], None]) -> Session:
        opened = course.past.opened
        assert opened is not None
        listen(opened.session_id)
        return Session(self._context, course.turn.identity, opened.session_id, opened.upload_id)

    async def _collect(self, course: Course, manifest: RunManifest) -> Collected:
        """Collect what there is, once; outputs that cannot be had are named, the answer is given all the same."""
        session = course.session
        if manifest.end_reason == "sandbox_lost":
            course.replayed = await self._replayed(course.run_id)
            course.replayed.recent.extend(course.called_directly)
            return await salvage(course, self._context, manifest)

        async def fetch() -> dict[str, Any]:
            return (await session.fetch(course.run_id)).to_outcome()

        try:
            done = await course.ledger.once("collect", fetch)
        except SandboxUnavailable as error:
            return Collected(files=(), lost=tuple(f"{output.name}: {error}" for output in manifest.outputs))
        fetched = Fetched.from_outcome(done.outcome)
        if fetched.maybe_twice or (done.maybe_twice and not fetched.repeatable):
            course.remarks += ("The files of this turn may have been stored twice: the service was interrupted while it stored them.",)
        return await collect(session, manifest, course.planned.plan.output_stem, fetched)

    async def _receipt(self, course: Course, manifest: RunManifest, collected: Collected, calls: ModelCalls) -> Receipt:
        if course.past.receipt is not None and course.past.receipt.end_reason == manifest.end_reason:
            return course.past.receipt
        course.remarks += tuple(calls.remarks)
        receipt = course.receipt(manifest, collected, calls, self._describe_sandbox())
        await course.ledger.record_step("answer", {"receipt": receipt.model_dump(mode="json")})
        return receipt

    async def _tidy(self, course: Course) -> None:
        """After the answer is out: let the runner forget the run, and drop the messages. Losing this loses nothing."""
        try:
            if course.pump is not None:
                await course.pump.release()
            await self._store.forget_messages(course.run_id)
        except ServiceError as error:
            logger.warning("The run %r was not tidied up: %s", course.run_id, error)

    def _plan(self, course: Course, continuing: Continuing | None = None, waited_seconds: float = 0.0) -> Planned:
        turn = course.turn
        number = turn.operation.turn_number
        limits = replace(self._limits, waited_seconds=waited_seconds)
        return make_plan(turn.request, run_id=course.run_id, turn_number=number, limits=limits, continuing=continuing)

    async def _still_ours(self, course: Course, session: Session) -> str:
        """Return the marker of the sandbox behind the session if it is the one this conversation's last turn has left, else nothing.

        One that says so and then denies it is not asked time and again: the turn goes on from its seal.
        """
        mark = course.conversation.sandbox if course.conversation else None
        if mark is None or mark.session_id != session.session_id or course.begun_anew >= _MOST_BEGINNINGS:
            return ""
        reply = await session.exchange(Exchange(run_id=course.run_id))
        return mark.generation if reply.generation == mark.generation else ""

    async def _say(self, course: Course, step: str, message: str) -> None:
        await course.ledger.append_events([{"type": "progress", "at": time.time(), "step": step, "message": message}])
        self._board.publish(course.turn.operation.operation_id, message)


async def _over(request: ModelRequest) -> ModelReply:
    """Answer a call of a turn that was given up: it is to end, not to go on."""
    return ModelReply(400, error_body("invalid_request_error", "the turn is over"))


def _in_own_words(manifest: RunManifest, calls: ModelCalls, planned: Planned) -> RunManifest:
    """Say what was wrong with the model, where the CLI knows only the relay inside the sandbox and blames that; and who demands a wall."""
    if manifest.end_reason == "model_error" and calls.failure:
        return manifest.model_copy(update={"detail": calls.failure, "answer": ""})
    return explain_refusal(manifest, planned)


def _failure(turn: AcceptedTurn, text: str, reason: str | None = None) -> CompletionResponse:
    return failed_response(
        turn.operation.operation_id,
        text,
        user_prompt=turn.request.user_prompt,
        agent_name=turn.request.agent.name,
        errors=[reason or text],
    )
