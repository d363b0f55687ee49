"""The sandboxes that a provider keeps: one per user and session, as many as may run, and why one of them is gone.

What a sandbox is made of is the provider's: it says how one is started, looked at and ended. What is the same for all of them is here:
concurrent callers share one start, a place is made free by what has idled longest, and an end with a reason is told once.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import anyio

from context_client.embedded.provider import SandboxEndpoint

from .errors import SandboxEnded, SandboxesClosed, SandboxPoolFull
from .transport import SandboxTransport

_MAX_REASONS = 1000

Key = tuple[str, str]


class InUse(Protocol):
    """A sandbox in use, as far as keeping it goes."""

    @property
    def transport(self) -> SandboxTransport:
        """The way to it; knows when it was used last."""

    @property
    def endpoint(self) -> SandboxEndpoint:
        """What its callers get."""


Running = TypeVar("Running", bound=InUse)


class KeptSandboxes(Generic[Running]):
    """Sandboxes by user and session.

    Args:
        plural: What they are called in messages.
        maximum: How many may run at the same time.
        spare_idle_seconds: How long one must have idled to be ended early for another session.
        why_gone: Looks at one; gives the reason if it is gone.
        end: Ends one, for a reason.
    """

    def __init__(
        self,
        plural: str,
        *,
        maximum: int,
        spare_idle_seconds: float,
        why_gone: Callable[[Running], Awaitable[str | None]],
        end: Callable[[Running, str], Coroutine[Any, Any, None]],
    ) -> None:
        self._plural = plural
        self._maximum = maximum
        self._spare_idle_seconds = spare_idle_seconds
        self._why_gone = why_gone
        self._end = end
        self._running: dict[Key, Running] = {}
        self._starting: dict[Key, anyio.Lock] = {}
        self._reserved = 0
        self._reasons: dict[Key, str] = {}
        self._is_closed = True

    @property
    def running(self) -> Mapping[Key, Running]:
        """Those in use."""
        return MappingProxyType(self._running)

    @asynccontextmanager
    async def open(self, *tasks: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
        """Let sandboxes be started until the end of the block, which ends them all.

        Args:
            tasks: Run meanwhile, without end.
        """
        self._is_closed = False
        try:
            async with anyio.create_task_group() as group:
                for task in tasks:
                    group.start_soon(task)
                try:
                    yield
                finally:
                    self._is_closed = True
                    group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            if len(errors.exceptions) > 1:
                raise
            raise errors.exceptions[0] from None  # the caller's own error, which the group has wrapped
        finally:
            await self._end_all()

    async def endpoint(self, key: Key, start: Callable[[], Awaitable[Running]]) -> SandboxEndpoint:
        """Give the way to a session's sandbox, starting it on first use; concurrent callers share one start.

        Args:
            key: Whose and which session.
            start: Starts it; may raise what it likes.

        Raises:
            SandboxPoolFull: As many run as may.
            SandboxEnded: It was ended for a reason since its last use; told once.
            SandboxesClosed: There are none any more.
        """
        lock = self._starting.setdefault(key, anyio.Lock())
        async with lock:
            try:
                running = await self._found(key) or await self._started(key, start)
                running.transport.touch()
                return running.endpoint
            finally:
                if lock.statistics().tasks_waiting == 0:
                    self._starting.pop(key, None)

    async def notice(self, key: Key) -> None:
        """Drop a sandbox that is gone, and keep the reason for the next caller."""
        running = self._running.get(key)
        reason = await self._why_gone(running) if running is not None else None
        if reason is not None and self._running.get(key) is running:
            await self.lose(key, reason)

    async def lose(self, key: Key, reason: str) -> None:
        """End a sandbox, and keep the reason for the next caller."""
        running = self._running.pop(key, None)
        if running is None:
            return
        self._reasons[key] = reason  # before the first await: a caller that comes meanwhile must not miss it
        if len(self._reasons) > _MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]
        await self._end(running, reason)

    async def notice_all(self, cooldown_seconds: float) -> None:
        """Look at every sandbox, and end those that have idled for so long; the next use silently starts an empty one."""
        for key, running in list(self._running.items()):
            await self.notice(key)
            if self._running.get(key) is running and running.transport.idle_seconds() > cooldown_seconds:
                del self._running[key]
                await self._end(running, "it was idle.")

    async def _found(self, key: Key) -> Running | None:
        if self._is_closed:
            raise SandboxesClosed(f"The {self._plural} are closed; the service is stopping.")
        await self.notice(key)
        if (reason := self._reasons.pop(key, None)) is not None:
            raise SandboxEnded(reason)
        return self._running.get(key)

    async def _started(self, key: Key, start: Callable[[], Awaitable[Running]]) -> Running:
        if len(self._running) + self._reserved >= self._maximum and not await self._make_room():
            raise SandboxPoolFull(self._maximum)
        self._reserved += 1
        try:
            running = await start()
        finally:
            self._reserved -= 1
        if self._is_closed:  # meanwhile; nobody else would end it
            await self._end(running, "the service stopped.")
            raise SandboxesClosed(f"The {self._plural} were closed while this one started; the service is stopping.")
        self._running[key] = running
        return running

    async def _make_room(self) -> bool:
        """End the sandbox that has idled longest, if it surely idles: a turn at work asks for something every few seconds."""
        idle = {key: running.transport.idle_seconds() for key, running in self._running.items()}
        longest = max(idle, key=lambda key: idle[key], default=None)
        if longest is None or idle[longest] < self._spare_idle_seconds:
            return False
        await self._end(self._running.pop(longest), "it was idle and another session needed its place.")
        return True

    async def _end_all(self) -> None:
        with anyio.CancelScope(shield=True):  # each end has its own deadline
            async with anyio.create_task_group() as group:
                for running in self._running.values():
                    group.start_soon(self._end, running, "the service stopped.")
            self._running.clear()
