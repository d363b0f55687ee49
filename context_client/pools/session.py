"""What is known of our sessions and of the pools they are on; nothing here asks anybody."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import anyio

from context_client.pools.metrics import PoolCounts, PoolFigures
from context_client.pools.settings import SessionPool

Trouble = Literal["", "full", "unreachable", "refused"]


@dataclass(eq=False)
class PoolState:
    """One pool as it was last seen."""

    pool: SessionPool
    began: float = 0.0
    """Since when it is counted."""
    counts: PoolCounts = field(default_factory=PoolCounts)
    sessions: set["Session"] = field(default_factory=set)
    not_before: float = 0.0
    """When it may be asked for a slot again."""
    trouble: Trouble = ""
    since: float = 0.0
    """When the present trouble began."""
    said: str = ""
    """Its last words about it."""

    def failed(self, trouble: Trouble, said: str, *, now: float, pause: float) -> None:
        """Remember that it gave no slot, and leave it alone for a while."""
        if self.trouble != trouble:
            self.trouble, self.since = trouble, now
        self.said, self.not_before = said, now + pause

    def served(self) -> None:
        """Remember that it is well."""
        self.trouble, self.said, self.not_before = "", "", 0.0

    def forget_expired(self, now: float) -> None:
        """Let go of sessions that must have lost their slot."""
        for session in [session for session in self.sessions if not session.has_slot(now)]:
            session.lose()

    def frees_up(self, now: float) -> list[float]:
        """In how many seconds each slot of ours becomes free at the earliest."""
        return [session.expires_in(now) for session in self.sessions]

    def describe(self) -> str:
        """Say how it is, for a message."""
        return f"{self.pool.name!r}: {self.said or 'not asked yet'}"

    def figures(self, now: float) -> PoolFigures:
        """Give its figures."""
        self.forget_expired(now)
        return PoolFigures(
            pool=self.pool.name,
            region=self.pool.region,
            max_sessions=self.pool.max_sessions,
            held=len(self.sessions),
            most_held=self.counts.most_held,
            seconds=now - self.began,
            busy=sum(session.under_way > 0 for session in self.sessions),
            calls=self.counts.calls,
            buckets=dict(self.counts.buckets),
            placed=self.counts.placed,
            verdicts=dict(self.counts.verdicts),
            timings=dict(self.counts.timings),
            new_allocations=self.counts.new_allocations,
            allocation_retries=self.counts.allocation_retries,
            waited=self.counts.waited,
        )


@dataclass(eq=False)
class Session:
    """One session of one user, and where its slot is."""

    session_id: str
    upn: str
    identifier: str
    created: float
    place: PoolState | None = None
    last_used: float = 0.0
    under_way: int = 0
    placings: int = 0
    """How often it got a slot."""
    looked_at: int = 0
    """Which of these sandboxes was asked what it is."""
    misfit: tuple[str, ...] = ()
    """How that one differs from what is needed."""
    admitting: anyio.Lock = field(default_factory=anyio.Lock)

    def has_slot(self, now: float) -> bool:
        """Whether its slot must still be there: it was served less than a cooldown ago, or is being served."""
        return self.place is not None and (self.under_way > 0 or self.expires_in(now) > 0)

    def expires_in(self, now: float) -> float:
        """Seconds until the pool takes its slot away, if nobody calls from now on."""
        cooldown = self.place.pool.cooldown_seconds if self.place is not None else 0.0
        return cooldown if self.under_way else self.last_used + cooldown - now

    def put(self, place: PoolState, now: float) -> None:
        """Remember who took it."""
        if self.place is not place:
            self.lose()
            self.place = place
            place.counts.placed += 1
        place.sessions.add(self)
        place.counts.most_held = max(place.counts.most_held, len(place.sessions))
        self.placings += 1
        self.last_used = now

    def lose(self) -> None:
        """Forget its slot."""
        if self.place is not None:
            self.place.sessions.discard(self)
        self.place = None

    def idle_seconds(self, now: float) -> float:
        """For how long nothing was asked of it."""
        return 0.0 if self.under_way else now - max(self.last_used, self.created)


def order(pools: Iterable[PoolState], identifier: str, last: PoolState | None, now: float) -> list[PoolState]:
    """Put the pools in the order in which a session without a slot asks them.

    Well ones before those that were full or away, near ones (priority) before far ones, and then by lot, weighted with the
    size of each pool. The lot is drawn from the identifier, so that another replica, or we after a restart, draws the
    same: it finds the sandbox of a turn that it takes over.
    """

    def rank(state: PoolState) -> tuple[bool, int, bool, float]:
        pool = state.pool
        crowded = len(state.sessions) >= pool.max_sessions
        return (bool(state.trouble) and state.not_before > now, pool.priority, crowded and state is not last, -_lot(identifier, pool))

    return sorted(pools, key=rank)


def _lot(identifier: str, pool: SessionPool) -> float:
    """Weighted rendezvous hashing: the greatest value wins, in proportion to the weights."""
    digest = hashlib.blake2b(f"{pool.name}\0{identifier}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest, "big") + 1) / (2**64 + 2)
    return -pool.max_sessions / math.log(uniform)
