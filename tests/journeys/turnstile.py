"""A turnstile in the way of a turn: at chosen moments the turn stands still until it is let through.

It stands where the service meets the world: in front of the Context API and of the model. So a test says when a portal polls, and what the
portal sees is no matter of chance.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.faults.gateway import Gateway, Passed, open_gateway, to_address

LONGEST_WAIT_SECONDS = 60.0
"""How long a test waits for a moment; a turn that never gets there fails it."""


@dataclass
class Turnstile:
    """Where the parts of a turn ask to be let through."""

    _reached: dict[str, anyio.Event] = field(default_factory=dict)
    _open: dict[str, anyio.Event] = field(default_factory=dict)

    async def stand(self, moment: str) -> None:
        """Tell that a moment is reached, and wait until the test has seen enough of it."""
        self._of(self._reached, moment).set()
        await self._of(self._open, moment).wait()

    @asynccontextmanager
    async def holding(self, moment: str) -> AsyncIterator[None]:
        """Wait for a moment; the turn goes on when the block is left."""
        with anyio.fail_after(LONGEST_WAIT_SECONDS):
            await self._of(self._reached, moment).wait()
        try:
            yield
        finally:
            self._of(self._open, moment).set()

    @staticmethod
    def _of(events: dict[str, anyio.Event], moment: str) -> anyio.Event:
        return events.setdefault(moment, anyio.Event())


@dataclass
class HeldModel:
    """A model whose answers wait at the turnstile, each call before it is answered and the last one also in the middle of its text."""

    model: ASGIApp
    turnstile: Turnstile
    last_call: int
    half: bytes
    """Text after which the last answer stops."""
    _calls: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.model(scope, receive, send)
            return
        self._calls += 1
        number = self._calls
        await self.turnstile.stand(f"model call {number}")

        async def sending(message: Message) -> None:
            await send(message)
            if number == self.last_call and self.half in message.get("body", b""):
                await self.turnstile.stand("half an answer")

        await self.model(scope, receive, sending)


@asynccontextmanager
async def held_context(url: str, turnstile: Turnstile) -> AsyncIterator[str]:
    """Stand in front of a Context API: opening a session and fetching the files of a run wait at the turnstile."""
    moments = {"open": "opening", "fetch": "collecting"}

    def classify(method: str, target: str) -> str:
        path = target.partition("?")[0].rstrip("/")
        if method != "POST":
            return ""
        return "open" if path.endswith("/codeSessions") else "fetch" if path.endswith("/downloadFiles") else ""

    async def watch(passed: Passed, when: str) -> None:
        if when == "before" and passed.number == 1 and passed.call in moments:
            await turnstile.stand(moments[passed.call])

    async with httpx.AsyncClient() as http:
        async with open_gateway(Gateway("context", classify, to_address(http, url), watch=watch)) as gateway:
            yield gateway.url
