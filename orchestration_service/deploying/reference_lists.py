"""Puts a line into the platform's list of a provider's resources, or takes it out; everything else in the list stays as it is."""

import json
from collections.abc import Mapping
from typing import Any

from deployment_templates.resources.references import ReferenceEntry
from orchestration_service.deploying.errors import NameTaken, Refused

_LINES = "ResourceReferences"


def with_reference(text: str | None, entry: ReferenceEntry, *, name: str) -> dict[str, Any]:
    """Return the content of a list with an entry, in the place of one of the same name.

    Args:
        text: The list's text; None where there is no list.
        entry: The entry.
        name: The list's name, for messages.

    Raises:
        Refused: It is no list.
        NameTaken: Another kind of resource has the name: agents, workflows, tools and templates share theirs.
    """
    content = parsed(text, name=name)
    lines = list(content[_LINES])
    for place, line in enumerate(lines):
        if line.get("Name") != entry.Name:
            continue
        if line.get("Type") != entry.Type and not line.get("Deleted"):
            raise NameTaken(
                f"{name!r} has a resource {entry.Name!r} of the type {line.get('Type')!r}, and agents, workflows and tools share their "
                "names. Choose another name in the profile, below [names].",
                status=0,
            )
        lines[place] = {**line, **entry.model_dump()}
        return {**content, _LINES: lines}
    return {**content, _LINES: [*lines, entry.model_dump()]}


def without_reference(text: str | None, entry: ReferenceEntry, *, name: str) -> dict[str, Any]:
    """Return the content of a list without an entry; one of the same name and another type is not ours.

    Raises:
        Refused: It is no list.
    """
    content = parsed(text, name=name)
    return {**content, _LINES: [line for line in content[_LINES] if not _is(line, entry)]}


def parsed(text: str | None, *, name: str) -> dict[str, Any]:
    """Return the content of a list; where there is none, an empty one.

    Raises:
        Refused: It is no list.
    """
    if text is None or not text.strip():
        return {"SchemaVersion": 1, _LINES: []}
    try:
        content = json.loads(text)
        if all(isinstance(line, dict) for line in content[_LINES]):
            return dict(content)
        raise TypeError("a line of it is no object")
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{name!r} is no list of resources ({error}); it is left as it is. Put it right first.", status=0) from error


def _is(line: Mapping[str, Any], entry: ReferenceEntry) -> bool:
    return bool(line.get("Name") == entry.Name and line.get("Type") == entry.Type)
