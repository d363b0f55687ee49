"""Lets a write anywhere in the stand-ins go wrong, and counts those that arrive."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass
class Faults:
    """What goes wrong, and what was written."""

    writes: list[str] = field(default_factory=list)
    """Each write that arrived, since this was last cleared."""

    passing: int | None = None
    """How many more writes are let through; None for all."""

    how: Literal["refused", "answer lost"] = "refused"
    """The write over the limit is not carried out, or it is and its answer says otherwise."""

    def write(self, what: str) -> Literal["fine", "refused", "answer lost"]:
        """A write arrives: say what becomes of it. After one fault, those that follow go wrong as well."""
        self.writes.append(what)
        if self.passing is None:
            return "fine"
        self.passing -= 1
        return self.how if self.passing == -1 else "refused" if self.passing < -1 else "fine"
