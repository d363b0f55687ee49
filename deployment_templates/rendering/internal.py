"""The internal generation: a package whose parts the platform's PowerShell module sends to the Management API.

The module joins parts by name, so bodies have no object ids. It cannot make workflows and tools: it sends them to an API that only reads
them, and stops. So these two are files to seed, and their lists are kept outside the package, as documentation.
"""

from collections.abc import Mapping
from typing import Any

from deployment_templates.rendering import tokens
from deployment_templates.rendering.scripts import package_call, session_pool
from deployment_templates.rendering.source import Source, references
from deployment_templates.resources import PlatformResource, RoleMember
from deployment_templates.resources.authorization import ALL_AGENTS_GROUP, ROLES

PROMPT_FILE = "CLAUDE_CODE_SYSTEM_PROMPT.txt"

_PRINCIPALS: Mapping[str, str] = {
    tokens.USERS: "Claude Code users",
    tokens.EDITORS: "Claude Code editors",
    tokens.VIRTUAL_GROUP: "Claude Code access tokens",
    ALL_AGENTS_GROUP: "All agent access tokens",
}


def files(source: Source) -> dict[str, str]:
    """Return the files of the package, and those beside it, by their path below the generation's folder."""
    resources = source.resources
    (agent,) = (resource.body for resource in resources.agents)
    workflow, tools = agent.pop("workflow"), agent.pop("tools")
    entries = (*resources.configuration, *resources.portal)
    found: dict[str, Any] = {
        "artifacts/agent.json": _named(agent),
        "artifacts/workflow.json": _by_name(workflow),
        "artifacts/tools.json": [_by_name(tool) for tool in tools],
        "artifacts/prompts.json": [_named(prompt.body) | {"prefix": PROMPT_FILE} for prompt in resources.prompts],
        "artifacts/aiModels.json": [_model(model) for model in resources.models],
        "artifacts/apiEndpointConfigurations.json": [_named(endpoint.body) for endpoint in resources.endpoints],
        "artifacts/appConfigurations.json": [
            entry.body(entry.value or "{{" + secret_parameter(entry.key) + "}}") for entry in entries if entry.merge is None
        ],
        "artifacts/roleAssignments.json": _roles(resources.roles),
        "shared/appConfigurations.json": [entry.body(entry.value or "") for entry in entries if entry.merge is not None],
        "documentation/workflowTypes.json": [_named(seeded.body) for seeded in resources.seeded if seeded.reference_type == "workflow"],
        "documentation/toolTypes.json": [_named(seeded.body) for seeded in resources.seeded if seeded.reference_type == "tool"],
        **{f"blobs/{seeded.blob_path}": seeded.blob_body for seeded in resources.seeded},
        "blobs/resource-references.additions.json": references(resources.seeded),
    }
    written = {path: source.written(value) for path, value in found.items()}
    (prompt,) = resources.prompts
    written[f"artifacts/{PROMPT_FILE}"] = source.text(prompt.body["prefix"])
    secrets = tuple(secret_parameter(secret.key) for secret in resources.secrets)
    written["session-pool.ps1.txt"] = session_pool(source.sandbox)
    return written | {"deploy-package.ps1.txt": package_call(source, written, secrets)}


def secret_parameter(key: str) -> str:
    """Return the package parameter that holds a secret while the package is sent."""
    endpoint = key.split(":")[2]
    return "CLAUDE_CODE_API_KEY" if endpoint == "ClaudeCode" else f"{endpoint.upper()}_API_KEY"


def _named(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "object_id"}


def _model(model: PlatformResource) -> dict[str, Any]:
    return _named(model.body) | {"endpoint_object_id": _reference(model.body["endpoint_object_id"])}


def _reference(object_id: str) -> dict[str, str]:
    kind, _, name = object_id.partition("/providers/")[2].rpartition("/")
    return {"type": kind, "name": name}


def _by_name(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return a workflow or tool with its resources by name; settings of a resource become paths with a value at the end."""
    resources = []
    for use in user["resource_object_ids"].values():
        properties = dict(use["properties"])
        entry: dict[str, Any] = _reference(use["object_id"])
        if role := properties.pop("object_role", None):
            entry["role"] = role
        if paths := [[name, *path] for name, settings in properties.items() for path in settings.items()]:
            entry["properties"] = paths
        resources.append(entry)
    return {name: value for name, value in user.items() if name != "resource_object_ids"} | {"resources": resources}


def _roles(roles: tuple[RoleMember, ...]) -> list[dict[str, Any]]:
    """Return the assignments by principal, as lists of role, kind and name."""
    names = {identifier: name for name, identifier in ROLES.items()}
    found: dict[str, dict[str, Any]] = {}
    for role in roles:
        given = role.assignment
        entry = found.setdefault(
            given.principal_id,
            {
                "principal_id": given.principal_id,
                "principal_name": _PRINCIPALS[given.principal_id],
                "principal_type": given.principal_type,
                "role_assignments": [],
            },
        )
        scope = _reference(given.scope)
        entry["role_assignments"].append([names[given.role_definition_id.rpartition("/")[2]], scope["type"], scope["name"]])
    return list(found.values())
