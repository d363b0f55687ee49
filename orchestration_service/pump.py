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

from pydantic import ValidationError

from orchestration_service.errors import SandboxLost, SandboxUnavailable
from workflow_schemas.delta import Bodies, compress, digest, expand
from workflow_schemas.errors import DeltaError, FrameError
from workflow_schemas.events import Warned, event_adapter
from workflow_schemas.mailbox import Exchange, Message, Reader, Reply, fit, split
from workflow_schemas.manifest import RunManifest

WAIT_SECONDS = 20.0
"""How long one exchange waits in the sandbox; far below every proxy's and server's limit (contract: context API, trap 11)."""

ANSWER_GRACE_SECONDS = 0.25
"""How long a model may take before an exchange goes out just to hear of events."""

_RETRY_SECONDS = 45.0
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
        call_model: Answers a model call; a failed model is an answer, an exception ends the run's following.
        on_events: Takes the runner's events in order, each one checked.
        pause_seconds: Time between a failed exchange and its repetition.
    """

    def __init__(
        self,
        run_id: str,
        *,
        session: Exchanges,
        log: MessageLog,
        call_model: Callable[[ModelRequest], Awaitable[ModelReply]],
        on_events: Callable[[list[dict[str, Any]]], Awaitable[None]],
        pause_seconds: float = 0.5,
    ) -> None:
        self._run_id = run_id
        self._session = session
        self._log = log
        self._call_model = call_model
        self._on_events = on_events
        self._pause_seconds = pause_seconds
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
        self._calling = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._failure: BaseException | None = None

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
            for task in {*polls, *self._calls}:
                task.cancel()
            await asyncio.gather(*polls, *self._calls, return_exceptions=True)

    async def release(self) -> None:
        """Tell the runner that the outputs are collected. A runner that does not hear it loses nothing."""
        await self.post("release", {})
        for _ in range(_RELEASE_ATTEMPTS):
            reply = await self._session.exchange(self._frame(wait=0.0))
            self._outgoing = [message for message in self._outgoing if message.seq > reply.ack]
            if reply.status != "ok" or not self._outgoing:
                return

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
        try:
            await self._receive(reply.messages)
        except (FrameError, _Nonsense) as error:
            raise SandboxLost(f"The runner in the sandbox sent something that makes no sense: {error}") from error

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
        events = [_checked(message.body) for message in whole if message.kind == "event"]
        if events:
            await self._on_events(events)
        for message in whole:
            if message.kind == "model_request":
                await self._take_model_request(message)
            elif message.kind == "final":
                self._manifest = _manifest(message.body, self._run_id)

    async def _take_model_request(self, message: Message) -> None:
        call_id, path, headers, announced, base_name = _about_request(message.body)
        base = self._bodies.get(base_name) if base_name else b""
        try:
            if base is None:
                raise DeltaError("the base of the request is not known here")
            body = expand(message.data, base)
            if digest(body) != announced:
                raise DeltaError("the request has another hash than announced")
        except DeltaError as error:
            if not base_name:
                raise _Nonsense(f"a model request that was sent whole cannot be read ({error})") from error
            await self.post("resend", {"call_id": call_id})
            return
        self._bodies.add(body)
        if call_id not in self._called:
            self._called.add(call_id)
            task = asyncio.create_task(self._answer(ModelRequest(call_id, path, headers, body)))
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
        await asyncio.sleep(self._pause_seconds)


class _Nonsense(Exception):
    """A message of the runner has a shape that the runner never sends."""


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """Return an event of the sandbox in the shape that readers rely on; one without shape becomes a warning."""
    try:
        return event_adapter.dump_python(event_adapter.validate_python(body), mode="json")  # type: ignore[no-any-return]
    except ValidationError:
        return Warned(message="The sandbox reported something that cannot be read.").model_dump(mode="json")


def _manifest(body: dict[str, Any], run_id: str) -> RunManifest:
    try:
        manifest = RunManifest.model_validate(body.get("manifest"))
    except ValidationError as error:
        raise _Nonsense(f"a manifest that cannot be read ({error.error_count()} faults)") from error
    if manifest.run_id != run_id:
        raise _Nonsense(f"the manifest of another run, {manifest.run_id!r}")
    return manifest


def _about_request(body: dict[str, Any]) -> tuple[str, str, dict[str, str], str, str]:
    headers = body.get("headers")
    words = tuple(body.get(name) for name in ("call_id", "path", "digest", "base"))
    if not all(isinstance(word, str) for word in words) or not isinstance(headers, dict):
        raise _Nonsense("a model request without identifier, path, headers or hash")
    call_id, path, announced, base = map(str, words)
    return call_id, path, {str(name): str(value) for name, value in headers.items()}, announced, base


def _stored(message: Message) -> bytes:
    return json.dumps(message.body, separators=(",", ":")).encode() + b"\n" + message.data


async def _first_of(tasks: set["asyncio.Future[Any]"], *, keep: set["asyncio.Task[Reply]"]) -> None:
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if task not in keep and not task.done():
                task.cancel()
