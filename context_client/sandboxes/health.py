"""One judgement: does the server inside a sandbox fit the service outside? Pure."""

from collections.abc import Mapping
from typing import Any


def health_differences(said: Mapping[str, Any], expected: Mapping[str, str]) -> tuple[str, ...]:
    """Say where a server's health differs from what this service needs.

    Args:
        said: What `GET /health` answered.
        expected: What it must contain.
    """
    return tuple(
        f"its {key} is {str(said.get(key, 'not told'))[:100]!r} and must be {value!r}"
        for key, value in expected.items()
        if said.get(key) != value
    )
