"""What the platform accepts as a resource, written down once more from the contract (portals and deployment §1.3-1.6, §2), and on
purpose not with the models of our templates: fields it does not know are dropped, objects must begin with their type, names have a form."""

import json
import re
import uuid
from typing import Any

NAME = re.compile(r"^[a-zA-Z]([a-zA-Z0-9_-]?)+$")
BASE = (
    "type name object_id display_name description cost_center properties created_on updated_on created_by updated_by deleted "
    "expiration_date inheritable_authorizable_actions"
).split()
FIELDS = {
    "agents": BASE
    + "sessions_enabled text_rewrite_settings cache_settings conversation_history_settings gatekeeper_settings workflow".split()
    + "realtime_speech_settings tools virtual_security_group_id show_message_tokens show_message_rating show_view_prompt".split()
    + "show_file_upload show_content_artifacts owner_user_id".split(),
    "prompts": [*BASE, "prefix", "suffix", "category"],
    "aiModels": [*BASE, "endpoint_object_id", "version", "deployment_name", "model_parameters"],
    "apiEndpointConfigurations": BASE
    + "category subcategory authentication_type authentication_parameters url status_endpoint url_exceptions timeout_seconds".split()
    + "retry_strategy_name provider api_version operation_type".split(),
}
TYPES = {
    "agents": {"generic-agent"},
    "prompts": {"multipart"},
    "aiModels": {"completion", "embedding", "image-generation", "realtime-speech"},
    "apiEndpointConfigurations": {"api-endpoint"},
}
REQUIRED = {
    "aiModels": ("endpoint_object_id",),
    "apiEndpointConfigurations": (
        "category",
        "authentication_type",
        "authentication_parameters",
        "url",
        "timeout_seconds",
        "retry_strategy_name",
    ),
}
WORKFLOW_TYPES = {
    "generic-agent-workflow",
    "external-agent-workflow",
    "langchain-agent-workflow",
    "langchain-expression-language-workflow",
    "langgraph-react-agent-workflow",
    "azure-openai-assistants-workflow",
    "azure-ai-agent-service-workflow",
}
REFERENCE_TYPES = {
    "FoundationaLLM.Agent": {"generic-agent", "basic", "workflow", "tool", "agent-template"},
    "FoundationaLLM.Prompt": {"multipart"},
    "FoundationaLLM.AIModel": TYPES["aiModels"],
    "FoundationaLLM.Configuration": {"api-endpoint"},
}
KIND_OF_PATH = {"agents": {"generic-agent", "basic"}, "workflows": {"workflow"}, "tools": {"tool"}}
ROLES = {
    "00a53e72-f66e-4c03-8f81-7e885fd2eb35",
    "a9f0020f-6e3a-49bf-8d1d-35fd53058edf",
    "1301f8d4-3bea-4880-945f-315dbd2ddb46",
}


class NotAccepted(Exception):
    """The platform answers 400; the text is its answer."""


def read_resource(text: str, kind: str, name: str) -> dict[str, Any]:
    """Read the body of an upsert as the platform would."""
    body = _read(text)
    if body["type"] not in TYPES[kind]:
        raise NotAccepted(f"The type discriminator {body['type']!r} is unknown.")
    if kind == "agents":
        _check_agent(body)
    if body.get("name") != name:
        raise NotAccepted("The resource path does not match the object definition (name mismatch).")
    if not NAME.match(name):
        raise NotAccepted("Validation failed: the name must start with a letter.")
    if missing := [field for field in REQUIRED.get(kind, ()) if body.get(field) is None]:
        raise NotAccepted(f"JSON deserialization was missing required properties: {missing}")
    known: dict[str, Any] = {field: body.get(field) for field in FIELDS[kind]}
    known["deleted"], known["inheritable_authorizable_actions"] = False, known["inheritable_authorizable_actions"] or []
    return known


def read_assignment(text: str, name: str) -> dict[str, Any]:
    """Read a role assignment as the platform would."""
    body = _read(text)
    if body.get("name") != name:
        raise NotAccepted("The resource path does not match the object definition (name mismatch).")
    if str(body.get("role_definition_id", "")).rpartition("/")[2] not in ROLES:
        raise NotAccepted("Validation failed: The role definition identifier must be a valid role definition identifier.")
    if body.get("principal_type") not in {"User", "Group", "ServicePrincipal"}:
        raise NotAccepted("Validation failed: The principal type must be a valid principal type.")
    for value in (name, body.get("principal_id")):
        try:
            uuid.UUID(str(value))
        except ValueError:
            raise NotAccepted("Validation failed: The identifier must be a valid GUID.") from None
    return body


def _read(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        raise NotAccepted("The object definition is invalid.") from None
    if not isinstance(body, dict) or next(iter(body), None) != "type":
        raise NotAccepted("The JSON payload for polymorphic type must specify a type discriminator first.")
    return body


def _check_agent(body: dict[str, Any]) -> None:
    workflow = body.get("workflow")
    if workflow is not None and next(iter(workflow), None) != "type":
        raise NotAccepted("The workflow must specify a type discriminator first.")
    if workflow is not None and workflow["type"] not in WORKFLOW_TYPES:
        raise NotAccepted(f"The workflow type {workflow['type']!r} is unknown.")
    if any(tool.get("category") == "Knowledge Search" for tool in body.get("tools") or []):
        raise NotAccepted("Validation failed: a knowledge search tool is not configured.")
