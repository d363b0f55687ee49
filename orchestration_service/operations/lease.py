"""Leases and effects: how several replicas share the work so that each turn has one owner and each effect happens once.

A lease says who works on an operation and until when; its **generation** grows with every take-over. A lease can lapse
without its owner noticing (a long pause, a clock put forward), so time alone protects nothing: every write of an owner
carries its `Claim`, and the store refuses the claims of earlier generations with `LeaseLost`. An owner that is refused
lets go of the turn at once; somebody newer has it.

An **effect** is a piece of work that must not be done twice (a charged model call, the making of file records). It is
recorded as begun before it is done, and as ended, with its outcome, afterwards.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

OperationT = TypeVar("OperationT")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Lease(_Frozen):
    """Who works on an operation, as everybody can see it."""

    owner: str
    """Name of the process that works on it; unique to one life of that process."""
    generation: int = Field(ge=1)
    """How many times the operation has been claimed."""
    until: datetime
    """When the lease lapses, by the store's clock, UTC. From then on anybody may claim the operation."""


class Claim(_Frozen):
    """What an owner holds: the proof, for each write, that nobody has taken the operation over."""

    operation_id: str
    """The operation claimed."""
    owner: str
    """Who claimed it."""
    generation: int = Field(ge=1)
    """Which claim on this operation it is, from 1. Only the newest one may write."""
    until: datetime
    """When the lease lapses unless renewed, by the store's clock, UTC."""


class EffectState(_Frozen):
    """How far an effect had got before it was asked about.

    ``absent``: nobody has begun it; do it. ``begun``: somebody began it and no end is known; it may or may not have
    happened, so look at the world before doing it again. ``ended``: it is done; use ``outcome``.
    """

    state: Literal["absent", "begun", "ended"]
    """How far it had got."""
    outcome: dict[str, Any] | None = None
    """What came of it; present exactly when it has ended."""
    begun_by: int = 0
    """The generation that began it first; 0 when nobody has, or when it was begun without a claim."""


ABSENT = EffectState(state="absent")
"""The state of an effect nobody has begun."""


def lease_standing(granted_at: float | None, until: float | None, now: float) -> Literal["free", "held", "ahead"]:
    """Judge a lease; all times in seconds of the same clock. Without times there is none, and the operation is free.

    ``ahead`` means granted in the future: the clock was put back since, so nobody can tell how long the lease still runs.
    """
    if granted_at is None or until is None:
        return "free"
    if granted_at > now:
        return "ahead"
    return "held" if until > now else "free"


class Leases(Protocol[OperationT]):
    """The part of the port that is about ownership.

    Clocks: an end of a lease is written and compared by the same store. A clock put forward lapses leases early; that
    costs a take-over, and the generation keeps the former owner from writing. A clock put back would keep leases too
    long; a `claim` that meets a lease granted in the future starts it anew for its own length, so the wait is bounded by
    that length.
    """

    async def claim(self, operation_id: str, owner: str, seconds: float, *, failed_too: bool = False) -> Claim | None:
        """Take an unfinished operation whose lease is free or has lapsed, with the next generation.

        Of several simultaneous claims, one succeeds. A conversation is a queue: while another unfinished operation of
        the same instance, user and conversation has a smaller turn number, the answer is None, whoever asks; operations
        without a conversation wait for nobody.

        Args:
            operation_id: The operation wanted.
            owner: Who asks; also an owner does not get its own running lease a second time.
            seconds: How long the lease is to run unless renewed.
            failed_too: Also take an operation that ended as Failed, to correct it by a result that came late (`finish`
                with ``adopt``). It waits for no turn.

        Returns:
            The claim, or None when the operation has ended, is leased, or has to wait for an earlier turn.

        Raises:
            OperationUnknown: There is no such operation.
        """
        ...

    async def renew(self, claim: Claim, seconds: float) -> Claim:
        """Prolong a lease to ``seconds`` from now. A lapsed or released lease nobody else has taken is revived.

        Raises:
            LeaseLost: Somebody has claimed the operation since.
            OperationUnknown: There is no such operation.
        """
        ...

    async def release(self, claim: Claim) -> None:
        """Give the lease up, so that the next claim need not wait. Without effect on a lease of another generation."""
        ...

    async def claimable(self, instance_id: str, limit: int = 100) -> list[OperationT]:
        """Return up to ``limit`` unfinished operations `claim` would give now, oldest first.

        Those that wait for an earlier turn are left out. Leases granted in the future (the clock was put back) are
        listed, so that a `claim` starts them anew.
        """
        ...


class Effects(Protocol):
    """The part of the port that keeps effects from happening twice.

    Names are ours and unique within an operation. What comes out of a sandbox belongs into one only as a number or a hash.
    """

    async def begin_effect(self, operation_id: str, name: str, claim: Claim | None = None) -> EffectState:
        """Record that an effect is about to be done, and return how far it had got **before** this call.

        Repeating it is harmless; a recorded end stays.

        Raises:
            LeaseLost: ``claim`` is outdated; nothing was recorded, and nothing may be done.
            OperationUnknown: There is no such operation.
        """
        ...

    async def end_effect(self, operation_id: str, name: str, outcome: dict[str, Any], claim: Claim | None = None) -> EffectState:
        """Record what came of an effect, begun or not, and return it as it stands. The first outcome stays.

        Raises:
            LeaseLost: ``claim`` is outdated; nothing was recorded.
            OperationUnknown: There is no such operation.
        """
        ...

    async def effects(self, operation_id: str) -> dict[str, EffectState]:
        """Return all effects begun or ended, by name, oldest first; empty for an unknown operation."""
        ...
