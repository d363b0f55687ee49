"""The words that the platform's resources are made of: names, identifiers, and the rules each must keep.

Everything the platform reads is polymorphic on `type`, and its JSON reader wants `type` first (contract: portals and deployment §1.3). So
all resources come from `PlatformObject`, which refuses fields nobody documented and writes fields in the order they are declared.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

GUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

Guid = Annotated[str, StringConstraints(pattern=f"^{GUID}$")]
"""An identifier of an instance, a group or a role assignment."""

ResourceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=100)]
"""A resource's name as the platform allows it."""

ObjectId = Annotated[
    str, StringConstraints(pattern=rf"^/instances/{GUID}/providers/FoundationaLLM\.[A-Za-z]+/[A-Za-z]+/[A-Za-z][A-Za-z0-9_:-]*$")
]
"""Where a resource is, as other resources refer to it."""

WorkflowType = Literal["generic-agent-workflow", "external-agent-workflow", "claude-code-agent-workflow"]
"""The kinds of workflow this project's service answers to; the last one needs a patched platform."""

AGENT = "FoundationaLLM.Agent"
PROMPT = "FoundationaLLM.Prompt"
AI_MODEL = "FoundationaLLM.AIModel"
CONFIGURATION = "FoundationaLLM.Configuration"
AUTHORIZATION = "FoundationaLLM.Authorization"

AGENTS = f"{AGENT}/agents"
WORKFLOWS = f"{AGENT}/workflows"
TOOLS = f"{AGENT}/tools"
PROMPTS = f"{PROMPT}/prompts"
AI_MODELS = f"{AI_MODEL}/aiModels"
ENDPOINTS = f"{CONFIGURATION}/apiEndpointConfigurations"
APP_CONFIGURATIONS = f"{CONFIGURATION}/appConfigurations"
ROLE_ASSIGNMENTS = f"{AUTHORIZATION}/roleAssignments"


class PlatformObject(BaseModel):
    """A part of a resource: frozen, strict, without fields that are not documented."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, protected_namespaces=())

    def body(self) -> dict[str, Any]:
        """Return what was set, as JSON values in the order of the fields: `type` first."""
        return self.model_dump(mode="json", exclude_unset=True)


def object_id(instance_id: str, kind: str, name: str) -> str:
    """Return the object id of a resource; `kind` is provider and type, such as `FoundationaLLM.Agent/agents`."""
    return f"/instances/{instance_id}/providers/{kind}/{name}"
