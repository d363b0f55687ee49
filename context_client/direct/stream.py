"""The events of one call, fetched from its sandbox as they come."""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import anyio

from context_client.direct.errors import BadAnswer, CallDied, DirectError, SandboxReplaced, SessionBusy
from context_client.direct.events import DirectEvent, Done, Failed, Replaced, Warned, parse_event
from context_client.direct.line import Patience
from context_client.direct.programs import Answer, Head, shown

Ask = Callable[[dict[str, Any], float], Awaitable[Answer]]
"""Gives an order to the session's sandbox, with the seconds that the sandbox may take for it."""

STOP_SECONDS = 12.0
"""How long a sandbox may take to stop a call."""

_GRACE_SECONDS = 120.0
_HASTY_SECONDS = 0.3
_MOST_WAIT_SECONDS = 180.0
_GONE = "The sandbox is another one than at the last call, and the files of the former are gone."
_REMEMBERED = "The agent remembers what was said, but not the files: send them again where they are needed."
_FORGOTTEN = "So is the conversation: a new one begins."


@dataclass(frozen=True, kw_only=True)
class DirectSettings:
    """How a proxy asks."""

    wait_seconds: float = 20.0
    """How long one execution waits for new events; far below the 220 s and 1801 s after which platforms cut."""

    most_bytes: int = 1024 * 1024
    """Most bytes of events in one answer; a longer event is left out, and that is told."""

    most_events: int = 100_000
    """Most events of one call; a sandbox that makes more is up to no good."""

    patience: Patience = field(default_factory=Patience)
    """How long to go on asking while the other side is at fault."""

    when_replaced: Literal["go_on", "refuse"] = "go_on"
    """What to do with a message when the sandbox is another one than at the last call: work in the empty one, or raise."""

    most_remembered: int = 64
    """Of how many sessions the conversation is kept here, up to 8 MiB each, for the sandbox that takes a lost one's place; 0 keeps none."""

    def __post_init__(self) -> None:
        """Refuse a wait that a platform would cut.

        Raises:
            ValueError: It is longer than 180 s.
        """
        if not 0 < self.wait_seconds <= _MOST_WAIT_SECONDS:
            raise ValueError(f"wait_seconds is {self.wait_seconds!r}; platforms cut executions after 220 s, so set at most 180.")


@dataclass
class Known:
    """What a proxy knows of a session between calls."""

    generation: str = ""
    """The sandbox that answered last."""

    refused: str = ""
    """A sandbox in another's place, of which the caller was told by an error: the next message means it."""

    memory: dict[str, Any] | None = None
    """The conversation, as its sandbox has packed it."""


class EventStream:
    """An async iterator over the events of one call, the last of them `done` or `error`.

    As a context manager it stops the call when the block is left before the end; without one, or after `detach`, the call goes on in
    the sandbox and `SessionProxy.follow` takes it up.
    """

    def __init__(
        self,
        ask: Ask,
        settings: DirectSettings,
        *,
        call: str,
        seconds: float,
        start: dict[str, Any] | None = None,
        known: Known | None = None,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.call = call
        """Name of the call in its sandbox."""

        self.skipped = 0
        """Lines that were no event."""

        self._ask = ask
        self._settings = settings
        self._start = start
        self._seconds = seconds
        self._known = known or Known()
        self._ready: deque[DirectEvent] = deque()
        self._failure: DirectError | None = None
        self._generation = ""
        self._next = self._seen = 0
        self._on_end = on_end
        self._asked = self._over = self._anew = self._told_end = False
        self._stops = start is not None
        self._deadline = time.monotonic() + seconds + _GRACE_SECONDS

    def detach(self) -> None:
        """Let the call go on when this stream is left."""
        self._stops = False

    async def aclose(self) -> None:
        """Leave; a call that was begun here and has not ended is stopped, as far as its sandbox can be reached."""
        if self._asked and self._stops and not self._over:
            with anyio.move_on_after(STOP_SECONDS, shield=True), suppress(DirectError):
                await self._ask({"op": "stop", "call": self.call}, STOP_SECONDS)
        self._over = True
        self._ready.clear()
        await self._finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DirectEvent:
        """Give the next event, waiting for it.

        Raises:
            DirectError: The sandbox cannot be asked, was replaced, or the call died; events that came before were given.
        """
        while not self._ready:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._over:
                await self._finish()
                raise StopAsyncIteration
            self._take(await (self._poll() if self._asked and self._start is None else self._begin()))
        return self._ready.popleft()

    async def _finish(self) -> None:
        """Do once what follows the last event."""
        on_end, self._on_end = self._on_end, None
        if on_end is not None and self._told_end:
            with anyio.move_on_after(STOP_SECONDS, shield=True), suppress(DirectError):
                await on_end()

    async def _begin(self) -> Answer:
        order = {**(self._start or {"op": "poll", "call": self.call, "after": 0}), **self._bounds()}
        self._asked = True
        answer = await self._ask(order, self._settings.wait_seconds)
        if answer.head.replaced:
            self._begin_anew(answer.head.generation)
            answer = await self._ask({**(self._start or {}), **self._bounds()}, self._settings.wait_seconds)
        if self._anew:
            remembered = answer.head.remembered
            message = f"{_GONE} {_REMEMBERED if remembered else _FORGOTTEN}"
            self._ready.append(Replaced(message=message, remembered=remembered))
        if answer.head.busy is not None:
            self._over = True
            raise busy(answer.head.busy)
        self._start = None
        self._generation = self._known.generation = answer.head.generation
        return answer

    def _begin_anew(self, generation: str) -> None:
        """Prepare to begin in another sandbox than the last call's.

        Raises:
            SandboxReplaced: That is not wanted.
        """
        if self._settings.when_replaced == "refuse" and generation != self._known.refused:
            self._over, self._known.refused = True, generation
            raise SandboxReplaced(f"{_GONE} Nothing was begun; send the message again to work in the empty sandbox.")
        self._start = {name: part for name, part in (self._start or {}).items() if name != "generation"} | {"memory": self._known.memory}
        self._anew = True

    async def _poll(self) -> Answer:
        order = {"op": "poll", "call": self.call, "after": self._next, "generation": self._generation, **self._bounds()}
        asked_at = time.monotonic()
        answer = await self._ask(order, self._settings.wait_seconds)
        if (
            not answer.lines
            and not answer.head.ended
            and time.monotonic() - asked_at < min(_HASTY_SECONDS, self._settings.wait_seconds / 2)
        ):
            await anyio.sleep(_HASTY_SECONDS)  # a sandbox that does not wait as it was told must not make us spin
        return answer

    def _bounds(self) -> dict[str, Any]:
        return {"wait_seconds": self._settings.wait_seconds, "most_bytes": self._settings.most_bytes}

    def _take(self, answer: Answer) -> None:
        head = answer.head
        if head.replaced or head.unknown:
            self._end(_lost(head))
            return
        if answer.lines and head.next <= self._next:
            raise BadAnswer("The sandbox gives the same events again and again.")
        if head.left_out:
            self._ready.append(Warned(message=f"Something longer than an answer may be, {head.left_out} bytes, was left out."))
        self._next = head.next
        for line in answer.lines:
            if self._accept(line):
                return
        if head.ended:
            self._end(
                CallDied(f"The call ended without its last event; send the message again. Its process said: {shown(head.words, 1000)!r}")
            )
        elif time.monotonic() > self._deadline:
            raise CallDied(f"The call did not end {_GRACE_SECONDS:.0f} s after its time limit of {self._seconds:.0f} s.")

    def _accept(self, line: str) -> bool:
        """Take one line; say whether it was the last event."""
        self._seen += 1
        if self._seen > self._settings.most_events:
            raise BadAnswer(f"The call made more than {self._settings.most_events} events; it should be stopped.")
        event = parse_event(line)
        if event is None:
            self.skipped += 1
            return False
        self._ready.append(event)
        self._over = self._told_end = isinstance(event, Done | Failed)
        return self._over

    def _end(self, failure: DirectError) -> None:
        self._over, self._failure = True, failure


def busy(call: str) -> SessionBusy:
    """Make the error for a session in which another call is at work."""
    return SessionBusy("Another call is at work in this session. Wait until it is done, follow it, or stop it.", call=shown(call, 64))


def _lost(head: Head) -> DirectError:
    if head.replaced:
        return SandboxReplaced(
            "The sandbox was replaced while the call was at work; its files and its conversation are gone. Send the message again."
        )
    return CallDied("The sandbox does not know the call any more: its session was cleared, or later calls took its place.")
