"""Words in the chat that are meant for the service, not for the agent. Pure."""

import re

_REWIND = re.compile(r"\s*/rewind(?:\s+(?P<turn>\d{1,6}))?\s*")


def rewind_target(prompt: str) -> int | None:
    """Return the turn a message wants to go back to, 0 when it names none, None when it is no such command."""
    found = _REWIND.fullmatch(prompt)
    return None if found is None else int(found["turn"] or 0)
