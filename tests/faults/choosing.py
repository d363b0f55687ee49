"""What may go wrong, and which of it a seed chooses: the same kind and seed always give the same fault."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal[
    "nothing",
    "service_killed",
    "both_killed",
    "platform_killed",
    "runner_killed",
    "sandbox_deleted",
    "sandbox_and_service",
    "context_call",
    "sandbox_call",
    "model_call",
    "store_outage",
    "clock_jump",
    "disk_full",
    "sandbox_full",
]
Damage = Literal["dropped", "lost", "delayed", "late", "duplicated", "repeated", "error", "error_after", "cut"]
"""What happens to an HTTP call. ``dropped``: before it is sent; ``lost``: the answer, after it was carried out; ``delayed`` and
``late``: held back before and after; ``duplicated`` and ``repeated``: sent twice at once and one after the other; ``error`` and
``error_after``: answered 500 without and after being carried out; ``cut``: in the middle of the answer."""

WEIGHTS: Mapping[Kind, int] = {
    "nothing": 1,
    "service_killed": 19,
    "both_killed": 9,
    "platform_killed": 4,
    "runner_killed": 6,
    "sandbox_deleted": 6,
    "sandbox_and_service": 5,
    "context_call": 17,
    "sandbox_call": 9,
    "model_call": 8,
    "store_outage": 6,
    "clock_jump": 5,
    "disk_full": 3,
    "sandbox_full": 2,
}
"""How often each kind comes up in a hundred runs."""

DAMAGES: Sequence[Damage] = ("dropped", "lost", "delayed", "late", "duplicated", "repeated", "error", "error_after", "cut")

LAST_WRITE = 45
"""Writes to the store of an undisturbed turn, about; a fault behind the last one does not happen."""
CALLS: Mapping[str, Mapping[str, int]] = {
    "context_call": {"create": 1, "upload": 1, "execute": 12, "download": 1, "content": 7},
    "sandbox_call": {"execute": 12, "delete": 1, "upload": 1, "list": 1, "download": 7},
    "model_call": {"messages": 4},
}
"""The calls of an undisturbed turn, by border, and how many of each there are."""
DESTROYING = frozenset({"platform_killed", "runner_killed", "sandbox_deleted", "sandbox_and_service", "sandbox_full"})
"""Kinds after which a turn may end without a patch."""
PLACES = ("/mnt/data", "/workspace", "/run/claude-code")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, and the seed it came from."""

    kind: Kind
    seed: int
    at: int = 0
    """At which write, call or exchange it happens, from 1; 0 for never."""
    moment: Literal["before", "after"] = "before"
    again_at: int = 0
    """At which write the second replica is killed too, or the first one after its sandbox."""
    call: str = ""
    """Which call of a border is damaged."""
    damage: Damage | Literal[""] = ""
    times: int = 1
    """How many such calls one after the other are damaged."""
    seconds: float = 0.0
    """How long it lasts, or by how much a clock jumps."""
    place: str = ""
    """Which folder of the sandbox is filled."""

    @property
    def destroys_work(self) -> bool:
        """Whether something was lost that nobody can bring back; then a turn may end without a patch, in words."""
        return self.kind in DESTROYING or (self.kind == "sandbox_call" and self.times > 1)

    @property
    def disturbs_polls(self) -> bool:
        """Whether a poll may be refused for a while, with an answer that says so."""
        return self.kind in ("store_outage", "disk_full")

    def __str__(self) -> str:
        known = {name: value for name, value in asdict(self).items() if value and name not in ("kind", "seed")}
        return f"{self.kind} #{self.seed} " + " ".join(f"{name}={value}" for name, value in known.items())


def choose_kind(seed: int) -> Kind:
    """Choose a kind by its weight."""
    return random.Random(f"kind {seed}").choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


def choose(kind: Kind, seed: int, *, long: bool = False) -> Fault:
    """Choose when, where and how a kind of fault happens.

    Args:
        kind: What goes wrong.
        seed: Decides the rest.
        long: Whether an outage may last half a minute.
    """
    chance = random.Random(f"{kind} {seed}")
    moment: Literal["before", "after"] = chance.choice(("before", "after"))
    at = chance.randint(1, LAST_WRITE)
    if kind == "both_killed":
        return Fault(kind=kind, seed=seed, at=at, again_at=chance.randint(1, LAST_WRITE), moment=moment)
    if kind in ("runner_killed", "sandbox_deleted"):
        return Fault(kind=kind, seed=seed, call="execute", at=chance.randint(1, 12), moment=moment)
    if kind == "sandbox_and_service":
        at = chance.randint(3, 11)
        return Fault(kind=kind, seed=seed, call="execute", at=at, again_at=chance.randint(8 + 2 * at, 22 + 2 * at), moment=moment)
    if kind in CALLS:
        call = chance.choice(list(CALLS[kind]))
        return Fault(
            kind=kind,
            seed=seed,
            call=call,
            at=chance.randint(1, CALLS[kind][call]),
            damage=chance.choice(DAMAGES),
            times=chance.choice((1, 1, 1, 2)),
            seconds=chance.choice((0.3, 1.5, 4.0)),
        )
    if kind == "store_outage":
        return Fault(kind=kind, seed=seed, at=at, moment=moment, seconds=chance.choice((1.0, 3.0, 7.0, 30.0 if long else 5.0)))
    if kind == "clock_jump":
        return Fault(kind=kind, seed=seed, at=at, moment=moment, seconds=chance.choice((-86400.0, -60.0, 60.0, 86400.0)))
    if kind == "disk_full":
        return Fault(kind=kind, seed=seed, at=at, moment=moment, seconds=chance.choice((0.5, 2.0, 5.0)))
    if kind == "sandbox_full":
        return Fault(kind=kind, seed=seed, call="execute", at=chance.randint(1, 11), moment=moment, place=chance.choice(PLACES))
    return Fault(kind=kind, seed=seed, at=at if kind in ("service_killed", "platform_killed") else 0, moment=moment)
