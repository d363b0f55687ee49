"""The line of sessions that wait for a slot: who came first is served first.

One line serves all pools, since any of them may take any session: so it is fair on each pool too, and nobody stands in the
wrong line. While nobody waits, asking is not serialised; once a pool said that it is full, only the head asks.
"""

import bisect
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """News for somebody whose session waits for a slot."""

    session_id: str
    """Our session."""

    upn: str
    """Whose it is."""

    position: int
    """Place in the line: 1 is the head; 0 had a slot before and goes ahead of the line."""

    waiting: int
    """How many wait, this one included."""

    waited_seconds: float
    """How long it waits already."""

    estimate_seconds: float | None
    """When a slot may become free, from what is known of our own sessions; None where nothing is."""


Observer = Callable[[Waiting], None]
"""Called at each change of the place and each refusal; it must not block and not raise."""

Ask = Callable[[], Awaitable[float | None]]
"""Asks for a slot: None means it was given, else the seconds to leave the pools alone."""


@dataclass(order=True)
class _Waiter:
    ticket: int
    moved: anyio.Event = field(compare=False)


class WaitingLine:
    """First come, first served."""

    def __init__(self) -> None:
        self._tickets = itertools.count()
        self._waiters: list[_Waiter] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    async def stand(self, ask: Ask, told: Callable[[int], None], *, wait_seconds: float) -> int:
        """Ask when it is one's turn, until a slot is given.

        Args:
            ask: Asks for a slot.
            told: Is told the place in the line, again and again.
            wait_seconds: How long to stand; asking once is always allowed.

        Returns:
            0 when a slot was given; the place in the line when the time was over before.
        """
        ticket = next(self._tickets)
        pause = 0.0
        if not self._waiters:
            asked = await ask()
            if asked is None:
                return 0
            pause = asked
        waiter = _Waiter(ticket, anyio.Event())
        bisect.insort(self._waiters, waiter)  # those who asked at the same time stand in the order in which they came
        position = 1
        try:
            with anyio.move_on_after(wait_seconds):
                while True:
                    position = bisect.bisect_left(self._waiters, waiter) + 1
                    told(position)
                    if position > 1:
                        await waiter.moved.wait()
                        waiter.moved, pause = anyio.Event(), 0.0
                        continue
                    await anyio.sleep(pause)
                    asked = await ask()
                    if asked is None:
                        return 0
                    pause = asked
        finally:
            self._waiters.remove(waiter)
            for other in self._waiters:
                other.moved.set()
        return position
