"""A measured figure beside its target."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure beside its target."""

    name: str
    """What was measured."""

    value: float
    """The figure."""

    unit: str
    """Its unit; a ratio has none."""

    target: float
    """The figure must not be above this."""

    detail: str = ""
    """What the figure was made of."""

    @property
    def is_met(self) -> bool:
        """Whether the target is met."""
        return self.value <= self.target


@dataclass(frozen=True)
class LeftOut:
    """A measurement that cannot be made on this machine."""

    why: str
    """What is missing, and what to do about it."""
