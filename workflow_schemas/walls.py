"""The wall between the agent and the runner, as both ends of the mailbox speak of it: what it keeps, and how strong it is.

A level is a promise about what is kept, not about how: another way to build a wall that keeps as much has the same level.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from workflow_schemas.platform_response import WireText

WallLevel = Literal[
    "landlock",  # what is outside cannot be read, changed, signalled or called, but it can be seen that it exists
    "namespaces",  # what is outside does not exist
]
"""How strong a wall is, the weaker first."""

Guard = Literal[
    "files",  # outside the agent's own places no file can be written or removed, and none read but the system's own
    "memory",  # no memory, environment or descriptor of a process outside can be had
    "signals",  # no process outside can be signalled or traced
    "sockets",  # no socket of the runner or the server answers, and that of the model answers the CLI alone
    "network",  # nothing outside the sandbox is reached, whatever the sandbox itself could reach
    "commands",  # a shell command cannot forge the agent's events, and ends with everything it has started
    "privileges",  # no capability, and no way to a new one, nor to a namespace of its own
    "processes",  # processes outside cannot be seen
    "names",  # files outside do not exist: neither their names, sizes and times can be seen, nor their modes be changed
    "temporary",  # temporary files and shared memory are the agent's alone, of a size of their own, and end with it
]
"""What a wall can keep from the agent."""

EVERY_WALL: Sequence[Guard] = ("files", "memory", "signals", "sockets", "network", "commands", "privileges")
"""What every wall keeps; an agent behind less than that is not started."""

GUARDS: Mapping[WallLevel, Sequence[Guard]] = {
    "landlock": EVERY_WALL,
    "namespaces": (*EVERY_WALL, "processes", "names", "temporary"),
}
"""What a wall of each level keeps."""


class WallFacts(BaseModel):
    """The wall that stood between an agent and its runner."""

    model_config = ConfigDict(frozen=True)

    level: WallLevel = Field(description="How strong it is: `landlock`, or the stronger `namespaces`.")
    kind: WireText = Field(description="What it is made of, such as `bubblewrap`.")
    guards: tuple[Guard, ...] = Field(description="What it keeps from the agent; docs/walls.md says what each word means.")
    words: WireText = Field("", description="What it does, in a sentence for people.")
    why_not_stronger: WireText = Field("", description="Why no stronger wall can be raised in this sandbox; empty for the strongest.")

    def in_words(self) -> str:
        """Return kind, level and what is kept, in one line."""
        return f"{self.kind} (level {self.level}), keeps {', '.join(self.guards)}"


def is_weaker(level: WallLevel, than: WallLevel | None) -> bool:
    """Tell whether a wall of a level is weaker than what is demanded; no demand is met by any."""
    return than is not None and _RANKS.index(level) < _RANKS.index(than)


def stricter(*demanded: WallLevel | None) -> WallLevel | None:
    """Return the strictest of several demands, None if nobody demands anything."""
    return max((level for level in demanded if level is not None), key=_RANKS.index, default=None)


_RANKS: Sequence[WallLevel] = get_args(WallLevel)
