"""Where the settings of an agent stand, and which place has the say. Pure.

The Management Portal has no editor for a workflow's properties, and whenever it saves an agent it replaces them by those of a workflow
resource, not always of the one the agent names (contract: portals §3). So they are the weakest place but one, and what is set in the
entry of the main model or on a tool, which survives a save, overrides them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workflow_schemas.platform import CompletionRequest
from workflow_schemas.properties import WorkflowProperties
from workflow_schemas.property_reading import NESTED, flatten, meant

_SETTINGS_TOOL = "claudecode"
_WORKFLOWS = "/foundationallm.agent/workflows/"


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The settings of an agent, from all places together."""

    values: dict[str, Any]
    """What is set, by name; the most particular place has won."""

    remarks: tuple[str, ...] = ()
    """One sentence for each name that is set differently in two places meant to override."""


@dataclass(frozen=True)
class _Place:
    words: str
    values: dict[str, Any]


def settings_of(request: CompletionRequest, model_overrides: Mapping[str, Any]) -> AgentSettings:
    """Collect the settings from the places an administrator has, each overriding those before it.

    They are the workflow resource, the agent's workflow, the model parameters of the main model's entry, and tools of the agent whose
    names begin with `ClaudeCode`.

    Args:
        request: What the platform sent.
        model_overrides: Model parameters of the main model's entry.
    """
    resource = _workflow_resource(request)
    own = request.agent.workflow.properties if request.agent.workflow else {}
    # what a save of the portal has copied there says nothing new, and must not look like somebody's wish
    places = [_Place("the agent's workflow", flatten({name: value for name, value in own.items() if resource.get(name) != value}))]
    places.append(_Place("the parameters of its main model", flatten({NESTED: model_overrides.get(NESTED)})))
    tools = [tool for tool in request.agent.tools if tool.name.casefold().startswith(_SETTINGS_TOOL)]
    places += [_Place(f"its tool {tool.name[:60]!r}", _of_tool(tool.properties)) for tool in tools]
    return _merged(flatten(resource), places)


def _merged(resource: dict[str, Any], places: list[_Place]) -> AgentSettings:
    values, remarks = resource, []
    said_by: dict[str, str] = {}
    for place in places:
        for name, value in place.values.items():
            if name in said_by and _plain(values[name]) != _plain(value) and name in WorkflowProperties.model_fields:
                remarks.append(
                    f"The workflow property {name!r} is set by {said_by[name]} and differently by {place.words}, which has the say."
                )
            said_by[name] = place.words
            values[name] = value
    return AgentSettings(values=values, remarks=tuple(remarks))


def _plain(value: Any) -> str:
    """Return a value as it would be typed: the portal makes a text of what was a number."""
    return str(value).strip().casefold()


def _of_tool(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return our settings on a tool: those below `claude_code`, and those beside the platform's own that bear our names, or nearly."""
    known = {name: value for name, value in properties.items() if name in WorkflowProperties.model_fields or _is_near(name)}
    return flatten({**known, NESTED: properties.get(NESTED)})


def _is_near(name: str) -> bool:
    return not name.startswith("code_session") and name != NESTED and meant(name) is not None


def _workflow_resource(request: CompletionRequest) -> dict[str, Any]:
    """Return the properties of the workflow resource the agent names, as far as it came with the request."""
    workflow = request.agent.workflow
    for object_id in workflow.resource_object_ids if workflow else ():
        found = request.objects.get(object_id)
        if _WORKFLOWS in object_id.casefold() and isinstance(found, dict) and isinstance(found.get("properties"), dict):
            return dict(found["properties"])
    return {}
