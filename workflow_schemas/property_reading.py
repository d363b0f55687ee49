"""Reads a workflow's properties as they come over the wire: what is understood, and what there is to say about the rest.

Nothing unknown or contradictory is dropped in silence. A value that cannot be used never leaves the agent with more than was asked for: a
number beyond its bounds becomes the nearest bound, an unknown tool is left out, and where the default would grant more than any reading of
the value, the turn is refused.
"""

import difflib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workflow_schemas.contradictions import contradictions
from workflow_schemas.properties import SCHEMA_VERSION, TOOLS, EgressPolicy, WorkflowProperties

NESTED = "claude_code"
"""Name below which our settings may stand together, beside settings of others."""

_LIKENESS = 0.75


class PropertyReading(BaseModel):
    """What was understood of a workflow's properties, and what the user should be told about the rest."""

    model_config = ConfigDict(frozen=True)

    properties: WorkflowProperties = Field(description="The settings in force.")
    remarks: tuple[str, ...] = Field((), description="One sentence for each name that is unknown, or value that was changed or not used.")
    refusals: tuple[str, ...] = Field((), description="One sentence for each value that no turn may run without; empty when all is well.")


def read_properties(raw: Mapping[str, Any] | None) -> PropertyReading:
    """Read the properties of a workflow as they come over the wire.

    Args:
        raw: `agent.workflow.properties`; the settings may lie flat or below `claude_code` (the nested ones win), as JSON or as text.
            An empty text or a null means "not set".

    Returns:
        The settings in force, remarks on everything that was changed, not used or contradictory, and refusals. Nothing is raised.
    """
    return _Reading(flatten(raw or {})).finish()


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties without the `claude_code` level, structures typed as text read, and what is not set left out."""
    merged = {name: _from_text(name, value) for name, value in raw.items()}
    nested = merged.pop(NESTED, None)
    if isinstance(nested, Mapping):
        merged |= {str(name): _from_text(str(name), value) for name, value in nested.items()}
    elif nested is not None:
        merged[NESTED] = nested
    return {name: value for name, value in merged.items() if value is not None and not (isinstance(value, str) and not value.strip())}


def meant(name: str, names: Collection[str] = tuple(WorkflowProperties.model_fields)) -> str | None:
    """Return the name that somebody who wrote an unknown one probably meant, None when nothing is near."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:100]).replace("-", "_").replace(" ", "_").casefold()
    by_plain = {known.casefold(): known for known in names}
    found = difflib.get_close_matches(plain, by_plain, n=1, cutoff=_LIKENESS)
    return by_plain[found[0]] if found else None


def _from_text(name: str, value: Any) -> Any:
    """Read what a property of structure holds when it was typed as JSON into a field for text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") and (name == NESTED or _is_structured(name)):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _is_structured(name: str) -> bool:
    known = WorkflowProperties.model_fields.get(name)
    return known is not None and (get_origin(known.annotation) is tuple or known.annotation is EgressPolicy)


class _Reading:
    """Brings values one by one into a form that holds."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._known = {name: value for name, value in given.items() if name in WorkflowProperties.model_fields}
        self._remarks = [
            f"The workflow property {name[:80]!r} is not known and has no effect."
            + (f" Did you mean {near!r}?" if (near := meant(name)) else "")
            for name in given
            if name not in self._known
        ]
        self._refusals: list[str] = []

    def finish(self) -> PropertyReading:
        self._keep_known_tools()
        self._note_version()
        while True:
            try:
                properties = WorkflowProperties.model_validate(self._known)
            except ValidationError as error:
                for fault in error.errors(include_url=False):
                    self._settle([str(part) for part in fault["loc"]], fault["type"], fault.get("ctx", {}), fault["msg"])
            else:
                remarks = (*self._remarks, *contradictions(properties))
                return PropertyReading(properties=properties, remarks=tuple(dict.fromkeys(remarks)), refusals=tuple(self._refusals))

    def _settle(self, place: list[str], kind: str, context: Mapping[str, Any], complaint: str) -> None:
        """Bring a value into bounds, or take it out; each call removes one reason for complaint."""
        name = place[0]
        if name not in self._known:
            return
        bound = next((context[end] for end in ("ge", "le") if end in context), None)
        if bound is not None and len(place) == 1:
            given, self._known[name] = self._known[name], bound
            self._remarks.append(f"The workflow property {name!r} is out of its bounds; {bound} is in force instead of {given!r:.40}.")
            return
        del self._known[name]
        wanted = _wanted(place, kind, context, complaint)
        if name in _RESTRICTING:
            self._refusals.append(f"The workflow property {name!r} cannot be used: {wanted}. {_RESTRICTING[name]}")
        else:
            shown = ".".join(place[:2])
            self._remarks.append(f"The workflow property {shown[:80]!r} was not used: {wanted}. {_instead(name)}")

    def _keep_known_tools(self) -> None:
        raw = self._known.get("allowed_tools")
        wanted = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
        if not isinstance(wanted, list | tuple):
            return
        spelled = {tool.casefold(): tool for tool in TOOLS}
        kept = dict.fromkeys(spelled[str(name).casefold()] for name in wanted if str(name).casefold() in spelled)
        left_out = [str(name) for name in wanted if str(name) and str(name).casefold() not in spelled]
        if left_out:
            self._remarks.append(
                f"The tools {', '.join(repr(name[:40]) for name in left_out[:10])} are not available and were left out of the workflow "
                f"property 'allowed_tools'; there are {', '.join(TOOLS)}."
            )
        if kept:
            self._known["allowed_tools"] = tuple(kept)
        else:
            del self._known["allowed_tools"]
            self._refusals.append(f"The workflow property 'allowed_tools' names no tool that exists. {_RESTRICTING['allowed_tools']}")

    def _note_version(self) -> None:
        version = str(self._known.get("schema_version", SCHEMA_VERSION)).strip()
        self._known["schema_version"] = version
        if version != SCHEMA_VERSION:
            self._remarks.append(
                f"The workflow property 'schema_version' is {version[:20]!r}; this service reads version {SCHEMA_VERSION!r} and took the "
                "properties for that."
            )


def _wanted(place: list[str], kind: str, context: Mapping[str, Any], complaint: str) -> str:
    """Say what belongs there, in words for people who never see our source; the value itself is not repeated."""
    if kind == "extra_forbidden":
        names = tuple(EgressPolicy.model_fields)
        near = meant(place[-1], names)
        return f"there is no such setting; did you mean {near!r}" if near else f"there are only {', '.join(map(repr, names))}"
    if kind.startswith("int"):
        return "it must be a whole number"
    if kind.startswith(("float", "greater_than", "finite")):
        return "it must be a number" + (f" above {context['gt']:g}" if "gt" in context else "")
    if kind == "literal_error":
        return f"it must be {context['expected']}"
    if kind == "string_pattern_mismatch":
        example = (WorkflowProperties.model_fields[place[0]].examples or [""])[0]
        return f"it must be written like {example!r}"
    return complaint.removeprefix("Value error, ").rstrip(".")


def _instead(name: str) -> str:
    default = WorkflowProperties.model_fields[name].get_default(call_default_factory=True)
    if isinstance(default, EgressPolicy):
        default = default.mode
    return "It counts as not set." if default is None or default == () else f"The default, {default!r}, is in force."


_RESTRICTING: Mapping[str, str] = {
    "allowed_tools": f"Choose from {', '.join(TOOLS)}, separated by commas.",
    "minimum_wall": "Choose 'landlock' or 'namespaces', or leave it out for the strongest wall a sandbox allows.",
    "max_total_tokens": "Set it to a whole number, or leave it out for no limit.",
}
"""Properties whose default grants more than any value an administrator may have meant, and what to write instead."""
