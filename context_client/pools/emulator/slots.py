"""The slots of the emulated pool: an identifier takes one at its first call and holds it until a cooldown after its last."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Slot:
    """One allocated session."""

    identifier: str
    """By what callers name it."""

    used: float
    """When it was last called."""

    guid: str = field(default_factory=lambda: str(uuid.uuid4()))
    """By what the sandboxes behind name it: another one each time, so that an allocation is always an empty sandbox."""

    under_way: int = 0
    """Calls being answered."""


class Slots:
    """All slots of a pool."""

    def __init__(self, *, maximum: int, cooldown_seconds: float, clock: Callable[[], float]) -> None:
        self._maximum = maximum
        self._cooldown_seconds = cooldown_seconds
        self._clock = clock
        self._taken: dict[str, Slot] = {}

    def __len__(self) -> int:
        """How many are taken now."""
        self._expire()
        return len(self._taken)

    def guids(self) -> set[str]:
        """The sandboxes of all slots."""
        return {slot.guid for slot in self._taken.values()}

    def find(self, identifier: str) -> Slot | None:
        """The slot of an identifier, if it has one."""
        self._expire()
        return self._taken.get(identifier)

    def take(self, identifier: str) -> Slot | None:
        """Give an identifier a slot; None if all are taken."""
        self._expire()
        if len(self._taken) >= self._maximum:
            return None
        slot = self._taken[identifier] = Slot(identifier, self._clock())
        return slot

    def evict(self, identifier: str) -> None:
        """Take a slot away at once."""
        self._taken.pop(identifier, None)

    def replace(self, slot: Slot) -> Slot:
        """Put an empty sandbox in place of one that is gone."""
        fresh = self._taken[slot.identifier] = Slot(slot.identifier, self._clock())
        return fresh

    def begin(self, slot: Slot) -> None:
        """A call begins."""
        slot.under_way += 1

    def end(self, slot: Slot) -> None:
        """A call ended; the cooldown begins anew."""
        slot.under_way -= 1
        slot.used = self._clock()

    def _expire(self) -> None:
        limit = self._clock() - self._cooldown_seconds
        for identifier in [name for name, slot in self._taken.items() if not slot.under_way and slot.used <= limit]:
            del self._taken[identifier]
