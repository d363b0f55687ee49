"""Tables for people, made from the models, so that a document cannot say something else than the code.

A document holds prose and, between two marks, a part that is written here. A test checks that the part is up to date.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workflow_schemas.json_schema import schemas

_BEGIN = "<!-- made from the models by ./dev schemas --docs docs: do not edit from here -->"
_END = "<!-- to here -->"
_COMMON = ("type", "seq", "at")

JsonObject = dict[str, Any]
"""A part of a JSON Schema."""


class MarkMissing(Exception):
    """A document lacks the two marks between which the made part belongs."""


def update_documents(folder: Path) -> tuple[Path, ...]:
    """Write the made part of each document anew; return those that changed.

    Raises:
        MarkMissing: A document lacks its marks.
    """
    changed = []
    for name, make in _makers().items():
        path = folder / name
        before = path.read_text(encoding="utf-8")
        after = renewed(before, make())
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return tuple(changed)


def renewed(document: str, part: str) -> str:
    """Return the document with this part between its marks.

    Raises:
        MarkMissing: They are not there, each once and in order.
    """
    before, begin, rest = document.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise MarkMissing(f"the document needs a line {_BEGIN!r} and, further down, a line {_END!r}")
    return f"{before}{_BEGIN}\n\n{part}\n{_END}{after}"


def properties_part() -> str:
    """Return a table of the workflow properties for each of their groups, in the order in which the groups first come."""
    schema = schemas()["WorkflowProperties"]
    groups: dict[str, list[str]] = {}
    for name, item in schema["properties"].items():
        nested = _target(item, schema)
        details = {name: item} if nested is None else {f"{name}.{inner}": detail for inner, detail in nested["properties"].items()}
        for shown, detail in details.items():
            cells = f"`{shown}`", value_words(detail), default_words(detail), _example(detail), detail["description"]
            groups.setdefault(detail["x-group"], []).append(row(*cells))
    head = ["| Property | Value | Default | Example | What it does |", "|---|---|---|---|---|"]
    return "\n".join(line for group, rows in groups.items() for line in (f"## {group}", "", *head, *rows, ""))


def events_part() -> str:
    """Return a table per kind of event, in the order of the model."""
    schema = schemas()["Event"]
    kinds = [schema["$defs"][choice["$ref"].rpartition("/")[2]] for choice in schema["oneOf"]]
    parts = []
    for kind in kinds:
        lines = [
            f"## `{kind['properties']['type']['const']}`",
            "",
            kind["description"],
            "",
            "| Field | Value | Default | What it is |",
            "|---|---|---|---|",
        ]
        for name, item in kind["properties"].items():
            if name not in _COMMON:
                default = "always given" if name in kind.get("required", ()) else default_words(item)
                lines.append(row(f"`{name}`", value_words(item), default, item["description"]))
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def _makers() -> Mapping[str, Callable[[], str]]:
    return {"properties.md": properties_part, "events.md": events_part}


def _target(item: JsonObject, schema: JsonObject) -> JsonObject | None:
    """Return the model a property refers to, if it does."""
    reference = str(item.get("$ref", ""))
    found: JsonObject | None = schema.get("$defs", {}).get(reference.rpartition("/")[2]) if reference else None
    return found


def value_words(item: JsonObject) -> str:
    """Say in words what may stand there."""
    if "enum" in item:
        return ", ".join(f"`{word}`" for word in item["enum"])
    if "const" in item:
        return f"always `{item['const']}`"
    kind = item.get("type")
    if "anyOf" in item:
        return " or ".join(value_words(choice) for choice in item["anyOf"] if choice.get("type") != "null")
    if kind == "array":
        return "list of texts" if item.get("items", {}).get("type") == "string" else "list"
    if kind == "string":
        return f"text like `{item['pattern']}`" if "pattern" in item else "text"
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _range(item)
    names: Mapping[str, str] = {"boolean": "true or false", "object": "object"}
    return names.get(str(kind), "any")


def _range(item: JsonObject) -> str:
    low, above, high = item.get("minimum"), item.get("exclusiveMinimum"), item.get("maximum")
    if low is not None:
        return f", from {low}" + (f" to {high}" if high is not None else "")
    words = [f"above {above}"] * (above is not None) + [f"at most {high}"] * (high is not None)
    return "".join(f", {word}" for word in words)


def default_words(item: JsonObject) -> str:
    """Say in words what holds when nothing is given."""
    if "default" not in item:
        return "empty"
    value = item["default"]
    if value is None:
        return "not set"
    if isinstance(value, list):
        return ", ".join(f"`{word}`" for word in value) or "empty"
    if isinstance(value, str):
        return f"`{value}`" if value else "empty"
    return f"`{json.dumps(value)}`"


def _example(item: JsonObject) -> str:
    return f"`{json.dumps(item['examples'][0], ensure_ascii=False)}`"


def row(*cells: str) -> str:
    """Return a row of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
