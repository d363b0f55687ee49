"""A value that ends, such as a token: got once for all who ask, kept, and renewed ahead of its end."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

from orchestration_service.brokers.errors import UpstreamFault

Value = TypeVar("Value")


@dataclass(frozen=True)
class Lasting(Generic[Value]):
    """A value and its end."""

    value: Value
    """The value; may be secret."""
    ends_at: float
    """Seconds since 1970 by the issuer's clock."""

    def __repr__(self) -> str:
        return f"Lasting(ends_at={self.ends_at!r})"


class Kept(Generic[Value]):
    """Gives the present value, and gets the next one before it ends.

    Inside `ahead_seconds` before the end (or the last half of a short life) one caller gets the next value while the others go on.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Lasting[Value]]],
        *,
        ahead_seconds: float = 300.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is got before it is asked for.

        Args:
            fetch: gets a new value; raises an `UpstreamFault` when there is none.
            ahead_seconds: how long before its end a value is replaced.
            clock: seconds since 1970.
        """
        self._fetch = fetch
        self._ahead_seconds = ahead_seconds
        self._clock = clock
        self._present: Lasting[Value] | None = None
        self._renew_at = 0.0
        self._fetching = anyio.Lock()

    async def get(self) -> Value:
        """Give a value that is still good.

        Raises:
            UpstreamFault: there is none, and no new one can be had.
        """
        present = self._present
        if present is None or present.ends_at <= self._clock():
            async with self._fetching:
                if self._present is present:  # else somebody got one meanwhile
                    await self._replace()
        elif self._renew_at <= self._clock() and not self._fetching.locked():
            async with self._fetching:
                await self._renew(present)
        assert self._present is not None
        return self._present.value

    async def _renew(self, present: Lasting[Value]) -> None:
        try:
            await self._replace()
        except UpstreamFault:  # whoever issues it is away; the present value is still good
            self._renew_at = min(present.ends_at, self._clock() + self._ahead_seconds / 10)

    async def _replace(self) -> None:
        new = await self._fetch()
        left = new.ends_at - self._clock()
        self._present, self._renew_at = new, new.ends_at - min(self._ahead_seconds, left / 2)
