"""Where each setting comes from, to be shown to the operator with its value.

A setting is looked for in this order, and the first place that has it counts: what the command line says, the environment, the file `.env`,
the platform's App Configuration, the built-in value. An empty variable counts as not set.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from orchestration_service.settings import Settings, set_in_environment, set_in_file, variable_of

MASK = "********"


@dataclass(frozen=True)
class Origin:
    """One setting as it is in force."""

    variable: str
    """Name of its environment variable; the first one, where it has two."""

    value: str
    """Its value as text, empty for none; of a secret nothing is told, its length neither."""

    source: str
    """Where the value comes from, in words."""

    meaning: str
    """What the setting is."""


def origins(settings: Settings, *, said: Mapping[str, Any], farther: Mapping[str, str]) -> tuple[Origin, ...]:
    """Tell of every setting where it comes from. Reads the environment and the file again.

    Args:
        settings: The settings in force.
        said: What the command line says, by field.
        farther: Where what is set neither there nor nearby comes from, in words, by field.
    """
    environment, file = set_in_environment(), set_in_file()
    found = []
    for name, described in Settings.model_fields.items():
        if name in said:
            source = "the command line"
        elif name in environment:
            source = "the environment"
        elif name in file:
            source = "the file .env"
        else:
            source = farther.get(name, "built in")
        found.append(Origin(variable_of(name), _shown(getattr(settings, name)), source, described.description or ""))
    return tuple(found)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    return str(value)
