"""The service's end of the mailbox: repeats exchanges until the run has ended, and lets nothing be lost or done twice.

A message of the runner is stored before it is acted upon, a message for it before it is sent. While a call waits for the model, a new
message may come up (its answer, a stop); it goes out with an exchange of its own, which ends the one that is still waiting in the sandbox.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from orchestration_service.errors import SandboxLost, SandboxUnavailable
from orchestration_service.letters import ModelReply, ModelRequest, Nonsense, checked_event, read_manifest, read_request, stored
from orchestration_service.replay import Replayed
from workflow_schemas.delta import compress
from workflow_schemas.errors import FrameError
from workflow_schemas.mailbox import Exchange, Message, Reply, fit, split
from workflow_schemas.manifest import RunManifest

WAIT_SECONDS = 20.0
"""How long one exchange waits in the sandbox; far below every proxy's and server's limit (contract: context API, trap 11)."""

ANSWER_GRACE_SECONDS = 0.25
"""How long a model may take before an exchange goes out just to hear of events."""

_CALLS_AT_ONCE = 16
_RELEASE_ATTEMPTS = 5


class Exchanges(Protocol):
    """What the pump needs of a session."""

    async def exchange(self, exchange: Exchange) -> Reply:
        """Carry one frame to the runner and one back."""
        ...


class MessageLog(Protocol):
    """What the pump needs of the operation store."""

    async def record_messages(self, run_id: str, direction: Any, messages: Sequence[tuple[int, str, bytes]]) -> int:
        """Keep messages; a number that is known stays as it is."""
        ...


class Pump:
    """Follows one run.

    Args:
        run_id: Identifier of the run.
        session: Carries the frames.
        log: Keeps the messages.
        call_model: Answers a model call; a failed model is an answer, an exception ends the run's following.
        on_events: Takes the runner's events in order, each one checked.
        expected: Marker of the sandbox that the run is to start in; in any other it does not start. Nothing if any will do.
        past: Where an earlier follower of the run has left it; call `rejoin` before `follow` then.
        pause_seconds: Time between a failed exchange and its repetition.
        patience_seconds: How long a sandbox that does not answer is asked again.
    """

    def __init__(
        self,
        run_id: str,
        *,
        session: Exchanges,
        log: MessageLog,
        call_model: Callable[[ModelRequest], Awaitable[ModelReply]],
        on_events: Callable[[list[dict[str, Any]]], Awaitable[None]],
        expected: str = "",
        past: Replayed | None = None,
        pause_seconds: float = 0.5,
        patience_seconds: float = 45.0,
    ) -> None:
        past = past or Replayed()
        self._run_id = run_id
        self._session = session
        self._log = log
        self._call_model = call_model
        self._on_events = on_events
        self._pause_seconds = pause_seconds
        self._patience_seconds = patience_seconds
        self._past = past
        self._generation = ""
        self._expected = expected
        self._seen = past.seen
        self._outgoing = list(past.sent)
        self._last_out = past.sent[-1].seq if past.sent else 0
        self._offered = 0
        self._evictions = 0
        self._changed = asyncio.Event()
        self._bodies = past.bodies
        self._reader = past.reader
        self._calls: set[asyncio.Task[None]] = set()
        self._called = set(past.called)
        self._manifest: RunManifest | None = past.manifest
        self._failing_since: float | None = None
        self._fault = ""
        self._posting = asyncio.Lock()
        self._calling = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._failure: BaseException | None = None

    @property
    def generation(self) -> str:
        """Marker of the sandbox, known after the first exchange."""
        return self._generation

    @property
    def has_ended(self) -> bool:
        """Whether the run's end is known."""
        return self._manifest is not None

    async def post(self, kind: str, body: dict[str, Any], data: bytes = b"") -> None:
        """Store a message for the runner and send it with the next exchange, which starts at once."""
        async with self._posting:
            *parts, last = split(data)
            first = self._last_out + 1
            messages = [Message(seq=first + index, kind="part", data=part) for index, part in enumerate(parts)]
            messages.append(Message.model_validate({"seq": first + len(parts), "kind": kind, "body": body, "data": last}))
            await self._log.record_messages(self._run_id, "in", [stored(message) for message in messages])
            self._outgoing.extend(messages)
            self._last_out = messages[-1].seq
            self._changed.set()

    async def rejoin(self) -> bool:
        """Take up the run where it was left, if it has not ended already. Nothing is sent before the runner is known to have the run.

        Returns:
            False when the runner does not know the run and nothing was ever heard of it: then nothing has started.

        Raises:
            SandboxLost: The sandbox was replaced, or does not answer.
        """
        if self._manifest is not None:
            return True
        reply = await self._asked()
        if reply.status == "unknown_run" and not self._seen:
            await self._asked(Message(seq=1, kind="release"))  # the start of whoever had the turn before may still be on its way
            return False
        if self._past.is_cut:
            await self.post("resend", {"call_id": ""})  # closes the parts of a message that was cut; the runner drops it
        try:
            await self._take(reply)
            self._offered = self._outgoing[0].seq - 1 if self._outgoing else self._last_out
            for call_id in self._past.to_resend:
                await self.post("resend", {"call_id": call_id})
        except BaseException:
            await self._drop(set())
            raise
        for request in self._past.waiting:
            self._begin_call(request)
        return True

    async def follow(self) -> RunManifest:
        """Exchange until the run has ended.

        Raises:
            SandboxLost: The sandbox was replaced, did not answer for too long, or speaks nonsense.
            SandboxUnavailable: The runner refuses the run.
            Exception: Whatever `call_model` or `on_events` raised.
        """
        polls: set[asyncio.Task[Reply]] = set()
        try:
            while self._manifest is None:
                if self._failure is not None:
                    raise self._failure
                self._changed.clear()
                if self._unsent() or (not polls and not await self._answer_is_near()):
                    polls.add(asyncio.create_task(self._exchange()))
                elif not polls:
                    continue
                await _first_of({*polls, asyncio.ensure_future(self._changed.wait())}, keep=polls)
                for poll in [poll for poll in polls if poll.done()]:
                    polls.discard(poll)
                    await self._handle(poll)
            return self._manifest
        finally:
            await self._drop(polls)

    async def release(self) -> None:
        """Tell the runner that the outputs are collected. A runner that does not hear it loses nothing."""
        if not self._generation:  # never spoken to here: it needs none of the earlier messages, least of all the start
            self._outgoing = []
        await self.post("release", {})
        for _ in range(_RELEASE_ATTEMPTS):
            reply = await self._session.exchange(self._frame(wait=0.0))
            self._outgoing = [message for message in self._outgoing if message.seq > reply.ack]
            if reply.status != "ok" or not self._outgoing:
                return

    async def _drop(self, polls: "set[asyncio.Task[Reply]]") -> None:
        tasks: set[asyncio.Task[Any]] = {*polls, *self._calls}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _unsent(self) -> bool:
        return self._last_out > self._offered

    async def _answer_is_near(self) -> bool:
        """Wait a moment for a model's answer, so that a quick one does not cost an exchange of its own."""
        if not self._calls or self._failing_since is not None:
            return False
        try:
            await asyncio.wait_for(self._changed.wait(), ANSWER_GRACE_SECONDS)
        except TimeoutError:
            return False
        return True

    def _frame(self, wait: float) -> Exchange:
        messages, more = fit(self._outgoing)
        if messages:
            self._offered = max(self._offered, messages[-1].seq)
        wait = 0.0 if more else wait  # the rest goes out as soon as these are acknowledged
        generation = self._generation or self._expected
        return Exchange(run_id=self._run_id, generation=generation, ack=self._seen, messages=tuple(messages), wait_seconds=wait)

    async def _exchange(self) -> Reply:
        return await self._session.exchange(self._frame(WAIT_SECONDS))

    async def _handle(self, poll: "asyncio.Task[Reply]") -> None:
        try:
            reply = poll.result()
        except SandboxUnavailable as error:
            await self._be_patient(error)
            return
        self._failing_since = None
        await self._take(reply)
        self._fault = ""

    async def _asked(self, *messages: Message) -> Reply:
        """Ask the runner what it has, sending nothing but these messages."""
        since = time.monotonic()
        while True:
            try:
                return await self._session.exchange(Exchange(run_id=self._run_id, ack=self._seen, messages=messages))
            except SandboxUnavailable as error:
                if time.monotonic() - since > self._patience_seconds:
                    raise SandboxLost(f"The sandbox does not answer any more: {error}", may_answer=True) from error
                await asyncio.sleep(self._pause_seconds)

    async def _take(self, reply: Reply) -> None:
        if reply.status in ("unknown_run", "wrong_generation") or (self._generation and reply.generation != self._generation):
            before = f" The last that was heard before: {self._fault}" if self._fault else ""
            raise SandboxLost(
                f"The sandbox was replaced while the agent was at work; its changes since then are lost.{before}",
                never_started=reply.status == "wrong_generation" and bool(self._expected) and not self._generation,
            )
        if reply.status == "busy" and self._evictions < _RELEASE_ATTEMPTS:
            await self._make_room(reply.active_run)
            return
        if reply.status in ("refused", "busy"):
            raise SandboxUnavailable(f"The runner refused the run: {reply.detail}.")
        self._generation = reply.generation
        self._outgoing = [message for message in self._outgoing if message.seq > reply.ack]
        try:
            await self._receive(reply.messages)
        except (FrameError, Nonsense) as error:
            raise SandboxLost(f"The runner in the sandbox sent something that makes no sense: {error}") from error

    async def _make_room(self, other: str) -> None:
        """End the run of an earlier turn, given up while its sandbox did not answer: two turns of a conversation never overlap."""
        self._evictions += 1
        try:
            await self._session.exchange(Exchange(run_id=other, messages=(Message(seq=1, kind="release"),)))
        except SandboxUnavailable as error:
            await self._be_patient(error)
        self._offered = self._outgoing[0].seq - 1 if self._outgoing else self._last_out

    async def _receive(self, messages: tuple[Message, ...]) -> None:
        fresh: list[Message] = []
        for message in messages:
            if message.seq == self._seen + len(fresh) + 1:
                fresh.append(message)
        if not fresh:
            return
        await self._log.record_messages(self._run_id, "out", [stored(message) for message in fresh])
        self._seen = fresh[-1].seq
        whole = [message for message in map(self._reader.feed, fresh) if message is not None]
        for message in whole:
            if message.kind == "model_request":  # first: the model takes longer than the log
                await self._take_model_request(message)
        events = [checked_event(message.body) for message in whole if message.kind == "event"]
        if events:
            await self._on_events(events)
        for message in whole:
            if message.kind == "final":
                self._manifest = read_manifest(message.body, self._run_id)

    async def _take_model_request(self, message: Message) -> None:
        request = read_request(message, self._bodies)
        if isinstance(request, str):
            await self.post("resend", {"call_id": request})
        elif request.call_id not in self._called:
            self._called.add(request.call_id)
            self._begin_call(request)

    def _begin_call(self, request: ModelRequest) -> None:
        task = asyncio.create_task(self._answer(request))
        self._calls.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        """Wake the loop when a call failed beyond an answer: the runner would wait for ever."""
        self._calls.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._changed.set()

    async def _answer(self, request: ModelRequest) -> None:
        async with self._calling:
            reply = await self._call_model(request)
        about: dict[str, Any] = {**reply.beside, "call_id": request.call_id, "status": reply.status}
        if reply.retry_after is not None:
            about["retry_after"] = reply.retry_after
        text = json.dumps(reply.body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        await self.post("model_answer", about, compress(text, request.body))

    async def _be_patient(self, error: SandboxUnavailable) -> None:
        """Repeat a failed exchange for a while; repeating one is harmless."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        self._fault = str(error)
        if not self._generation and now - self._failing_since > 2:
            raise error
        if now - self._failing_since > self._patience_seconds:
            raise SandboxLost(f"The sandbox stopped answering: {error}", may_answer=True) from error
        self._offered = self._outgoing[0].seq - 1 if self._outgoing else self._last_out
        await asyncio.sleep(self._pause_seconds)


async def _first_of(tasks: set["asyncio.Future[Any]"], *, keep: set["asyncio.Task[Reply]"]) -> None:
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if task not in keep and not task.done():
                task.cancel()
