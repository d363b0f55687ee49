"""The service's end of the mailbox: repeats exchanges until the run has ended, and lets nothing be lost or done twice.

A message of the runner is stored before it is acted upon, a message for it before it is sent. While a call waits for the model, a new
message may come up (its answer, a stop); it goes out with an exchange of its own, which ends the one that is still waiting in the sandbox.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestration_service.errors import SandboxLost, SandboxUnavailable
from workflow_schemas.delta import Bodies, compress, digest, expand
from workflow_schemas.errors import DeltaError
from workflow_schemas.mailbox import Exchange, Message, Reader, Reply, fit, split
from workflow_schemas.manifest import RunManifest

WAIT_SECONDS = 20.0
"""How long one exchange waits in the sandbox; far below every proxy's and server's limit (contract: context API, trap 11)."""

ANSWER_GRACE_SECONDS = 0.25
"""How long a model may take before an exchange goes out just to hear of events."""

_RETRY_SECONDS = 45.0


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


@dataclass(frozen=True)
class ModelRequest:
    """A model call as the agent's CLI made it."""

    call_id: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class ModelReply:
    """What goes back to the agent's CLI."""

    status: int
    body: dict[str, Any]
    retry_after: float | None = None


class Pump:
    """Follows one run.

    Args:
        run_id: Identifier of the run.
        session: Carries the frames.
        log: Keeps the messages.
        call_model: Answers a model call; must not raise.
        on_events: Takes the runner's events in order.
    """

    def __init__(
        self,
        run_id: str,
        *,
        session: Exchanges,
        log: MessageLog,
        call_model: Callable[[ModelRequest], Awaitable[ModelReply]],
        on_events: Callable[[list[dict[str, Any]]], Awaitable[None]],
    ) -> None:
        self._run_id = run_id
        self._session = session
        self._log = log
        self._call_model = call_model
        self._on_events = on_events
        self._generation = ""
        self._seen = 0
        self._outgoing: list[Message] = []
        self._last_out = 0
        self._offered = 0
        self._changed = asyncio.Event()
        self._bodies = Bodies()
        self._reader = Reader()
        self._calls: set[asyncio.Task[None]] = set()
        self._called: set[str] = set()
        self._manifest: RunManifest | None = None
        self._failing_since: float | None = None
        self._posting = asyncio.Lock()

    @property
    def generation(self) -> str:
        """Marker of the sandbox, known after the first exchange."""
        return self._generation

    async def post(self, kind: str, body: dict[str, Any], data: bytes = b"") -> None:
        """Store a message for the runner and send it with the next exchange, which starts at once."""
        async with self._posting:
            *parts, last = split(data)
            first = self._last_out + 1
            messages = [Message(seq=first + index, kind="part", data=part) for index, part in enumerate(parts)]
            messages.append(Message.model_validate({"seq": first + len(parts), "kind": kind, "body": body, "data": last}))
            await self._log.record_messages(self._run_id, "in", [(message.seq, message.kind, _stored(message)) for message in messages])
            self._outgoing.extend(messages)
            self._last_out = messages[-1].seq
            self._changed.set()

    async def follow(self) -> RunManifest:
        """Exchange until the run has ended.

        Raises:
            SandboxLost: The sandbox was replaced, or did not answer for too long.
            SandboxUnavailable: The runner refuses the run.
        """
        polls: set[asyncio.Task[Reply]] = set()
        try:
            while self._manifest is None:
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
            for task in {*polls, *self._calls}:
                task.cancel()
            await asyncio.gather(*polls, *self._calls, return_exceptions=True)

    async def release(self) -> None:
        """Tell the runner that the outputs are collected. A runner that does not hear it loses nothing."""
        await self.post("release", {})
        await self._session.exchange(self._frame(wait=0.0))

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
        messages, _ = fit(self._outgoing)
        if messages:
            self._offered = max(self._offered, messages[-1].seq)
        return Exchange(run_id=self._run_id, generation=self._generation, ack=self._seen, messages=tuple(messages), wait_seconds=wait)

    async def _exchange(self) -> Reply:
        return await self._session.exchange(self._frame(WAIT_SECONDS))

    async def _handle(self, poll: "asyncio.Task[Reply]") -> None:
        try:
            reply = poll.result()
        except SandboxUnavailable as error:
            await self._be_patient(error)
            return
        self._failing_since = None
        if reply.status in ("unknown_run", "wrong_generation") or (self._generation and reply.generation != self._generation):
            raise SandboxLost("The sandbox was replaced while the agent was at work; its changes since then are lost.")
        if reply.status == "refused":
            raise SandboxUnavailable(f"The runner refused the run: {reply.detail}.")
        self._generation = reply.generation
        self._outgoing = [message for message in self._outgoing if message.seq > reply.ack]
        await self._receive(reply.messages)

    async def _receive(self, messages: tuple[Message, ...]) -> None:
        fresh: list[Message] = []
        for message in messages:
            if message.seq == self._seen + len(fresh) + 1:
                fresh.append(message)
        if not fresh:
            return
        await self._log.record_messages(self._run_id, "out", [(message.seq, message.kind, _stored(message)) for message in fresh])
        self._seen = fresh[-1].seq
        whole = [message for message in map(self._reader.feed, fresh) if message is not None]
        events = [message.body for message in whole if message.kind == "event"]
        if events:
            await self._on_events(events)
        for message in whole:
            if message.kind == "model_request":
                await self._take_model_request(message)
            elif message.kind == "final":
                self._manifest = RunManifest.model_validate(message.body["manifest"])

    async def _take_model_request(self, message: Message) -> None:
        call_id, base_name = str(message.body["call_id"]), str(message.body["base"])
        base = self._bodies.get(base_name) if base_name else b""
        try:
            if base is None:
                raise DeltaError("the base of the request is not known here")
            body = expand(message.data, base)
            if digest(body) != message.body["digest"]:
                raise DeltaError("the request has another hash than announced")
        except DeltaError:
            await self.post("resend", {"call_id": call_id})
            return
        self._bodies.add(body)
        if call_id not in self._called:
            self._called.add(call_id)
            request = ModelRequest(call_id, str(message.body["path"]), dict(message.body["headers"]), body)
            task = asyncio.create_task(self._answer(request))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _answer(self, request: ModelRequest) -> None:
        reply = await self._call_model(request)
        about: dict[str, Any] = {"call_id": request.call_id, "status": reply.status}
        if reply.retry_after is not None:
            about["retry_after"] = reply.retry_after
        text = json.dumps(reply.body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        await self.post("model_answer", about, compress(text, request.body))

    async def _be_patient(self, error: SandboxUnavailable) -> None:
        """Repeat a failed exchange for a while; repeating one is harmless."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if not self._generation and now - self._failing_since > 2:
            raise error
        if now - self._failing_since > _RETRY_SECONDS:
            raise SandboxLost(f"The sandbox stopped answering: {error}") from error
        self._offered = self._outgoing[0].seq - 1 if self._outgoing else self._last_out
        await asyncio.sleep(0.5)


def _stored(message: Message) -> bytes:
    return json.dumps(message.body, separators=(",", ":")).encode() + b"\n" + message.data


async def _first_of(tasks: set["asyncio.Future[Any]"], *, keep: set["asyncio.Task[Reply]"]) -> None:
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if task not in keep and not task.done():
                task.cancel()
