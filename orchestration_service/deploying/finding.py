"""What a step finds when it compares what is there with what is wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from orchestration_service.deploying.leaves import Leaf

Act = Literal["create", "change", "remove", "run", "blocked", "nothing"]
"""What there is to do: make it, change it, take it away, run a command, nothing before the operator has done something, nothing at all."""


@dataclass(frozen=True)
class Finding:
    """The result of a comparison. No value of a secret is ever in it."""

    what: str
    """What was compared, in words: `agent 'claude-code'`."""

    act: Act
    """What there is to do."""

    leaves: Sequence[Leaf] = ()
    """Single differences that are to be written."""

    kept: Sequence[Leaf] = ()
    """Single differences that are somebody else's choice, and stay."""

    note: str = ""
    """Why, or what to do about it."""

    stays: bool = False
    """When things are removed: it is not, and what it needs must not be either."""

    @property
    def acts(self) -> bool:
        """Whether anything is to be done, by us or by the operator."""
        return self.act != "nothing"


class Step(Protocol):
    """One thing of an installation. Looking never changes anything; acting looks again first."""

    @property
    def what(self) -> str:
        """What it is about, in words; no two steps of a deployment are called the same."""

    async def inspect(self) -> Finding:
        """Return what there is to do to have it as wanted."""

    async def apply(self) -> Finding:
        """Do it; return what was done."""

    async def inspect_removal(self) -> Finding:
        """Return what there is to do to have it gone; `nothing` with a note when it is kept."""

    async def remove(self) -> Finding:
        """Do it; return what was done."""
