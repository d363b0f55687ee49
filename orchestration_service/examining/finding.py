"""What an examination tells: kinds of findings, each with why it matters and how to put it right, and what was found."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Group = Literal["keys", "endpoint", "resources", "agent", "models", "sandbox", "roles", "portal", "service", "examination"]
"""What a finding is about; findings are told in this order."""

GROUP_WORDS: Mapping[Group, str] = {
    "keys": "Keys",
    "endpoint": "Endpoint of the service",
    "resources": "Resources and lists",
    "agent": "Agent",
    "models": "Models",
    "sandbox": "Session pool",
    "roles": "Roles",
    "portal": "User Portal",
    "service": "Service and platform",
    "examination": "Not examined",
}


_MOST_CHARACTERS = 2000


@dataclass(frozen=True)
class Kind:
    """A kind of finding."""

    code: str
    """Its name, for scripts; it never changes."""

    group: Group
    """What it is about."""

    meaning: str
    """What is wrong, in general."""

    why: str
    """What comes of it."""

    fix: str
    """What to do; names in braces are filled in."""

    def seen(self, found: str, **names: str) -> "Finding":
        """Return a finding of this kind.

        Args:
            found: What was found, with its names. Never the value of a secret.
            names: What the fix names.
        """
        return Finding(self, _shown(found), _shown(self.fix.format_map(names)))

    @property
    def fix_in_general(self) -> str:
        """The fix with capitals for what differs between installations."""
        return self.fix.format_map(_Capitals(commands_for("FILE")))


def _shown(text: str) -> str:
    """A text for a terminal: what was found was written by others, and may be long or hold control characters."""
    calm = "".join(character if character.isprintable() else " " for character in text)
    return calm if len(calm) <= _MOST_CHARACTERS else f"{calm[:_MOST_CHARACTERS]}…"


class _Capitals(dict[str, str]):
    """Names for the fixes in general: those that are not given, in capitals."""

    def __missing__(self, name: str) -> str:
        return name.upper().replace("_", "-")


def commands_for(profile_path: str) -> dict[str, str]:
    """Return the names of fixes that are commands, and of the profile they take.

    Args:
        profile_path: File the profile is in.
    """
    apply = f"./dev deploy apply --profile {shlex.quote(profile_path)}"
    return {"apply": apply, "overwrite": f"{apply} --overwrite", "profile": profile_path}


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or was not seen."""

    kind: Kind
    """What kind it is of."""

    found: str
    """What was found."""

    fix: str
    """What to do."""

    explains: frozenset[str] = field(default_factory=frozenset)
    """Facts that could not be had because of it; they need no finding of their own."""

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong; otherwise it was only not seen."""
        return self.kind.group != "examination"
