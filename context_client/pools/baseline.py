"""The facts about session pools, from the one file that holds them; emulator and parity check read them here."""

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Fact(BaseModel):
    """One thing that is known, or guessed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: Any = Field(description="What it is.")
    status: Literal["documented", "measured", "unverified"] = Field(description="How well it is known.")
    source: str = Field(min_length=1, description="Who says so.")
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$", description="When they said so.")


@functools.cache
def facts() -> Mapping[str, Fact]:
    """Every fact by name."""
    text = resources.files("context_client.pools").joinpath("baseline.json").read_text(encoding="utf-8")
    return {name: Fact.model_validate(fact) for name, fact in json.loads(text)["facts"].items()}


def fact(name: str) -> Any:
    """The value of a fact.

    Raises:
        KeyError: There is no such fact.
    """
    return facts()[name].value
