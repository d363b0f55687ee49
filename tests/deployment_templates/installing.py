"""Plays the platform's own installers on rendered templates: fills placeholders as its scripts do, and joins a package's parts by name.

Written from what the scripts are known to do, without the code that renders. PowerShell's `-replace` takes the placeholder for a regular
expression, does not mind case, and takes `$` in a value for a group; the quick start expands `${env:NAME}`, and also any other `$`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deployment_templates.profile import Profile, read_profile

TEMPLATES = Path(__file__).parents[2] / "deployment_templates"
FOLDERS: Mapping[str, str] = {"standard": "standard", "quick-start": "quick_start", "internal": "internal"}

INSTANCE = "8ac6074c-bdde-43cb-a140-ec0002d96d2b"
USERS = "3f1d7f0e-8f3c-4a55-9d0a-6f2f0d5b2a11"
VIRTUAL_GROUP = "77777777-2222-4333-8444-555555555555"
POOL = "https://pool.westeurope.azurecontainerapps.io"
SERVICES: Mapping[str, str] = {
    "standard": "http://claude-code-api.fllm.svc.cluster.local",
    "quick-start": "https://claude-code.wittycliff.westeurope.azurecontainerapps.io",
    "internal": "https://claude-code.wittycliff.westeurope.azurecontainerapps.io",
}
MODELS: Mapping[str, str] = {"sonnet": "claude-sonnet-4-5", "opus": "claude-opus-4-5", "haiku": "claude-haiku-4-5"}
STAMPS = ("created_on", "updated_on", "created_by", "updated_by", "deleted", "expiration_date")


def profile(generation: str, **more: Any) -> Profile:
    """The installation that the values below make of the templates."""
    values: dict[str, Any] = {
        "instance_id": INSTANCE,
        "service": {"url": SERVICES[generation]},
        "models": {**MODELS},
        "sandbox": {"pool_url": POOL},
        "roles": {"users": [USERS], "virtual_security_group_id": VIRTUAL_GROUP},
    }
    return read_profile(values | more)


def values(generation: str, guids: Mapping[str, str]) -> dict[str, str]:
    """What an operator and the platform's scripts put into the placeholders; `guids` are those of role assignments by label."""
    if generation == "standard":
        given = {
            "instanceId": INSTANCE,
            "serviceNamespaceName": "fllm",
            "keyvaultUri": "https://vault.example/",
            "deployTime": "2026-01-28T10:00:00.0000000Z",
            "claudeCodeUsersGroupObjectId": USERS,
            "claudeCodeVirtualSecurityGroupId": VIRTUAL_GROUP,
            "claudeCodeSessionPoolEndpoint": POOL,
            **{f"claude{size.capitalize()}ModelName": name for size, name in MODELS.items()},
        }
        return given | {f"claudeCode{label[0].upper()}{label[1:]}Guid": guid for label, guid in guids.items()}
    upper = {f"CLAUDE_{size.upper()}_MODEL_NAME": name for size, name in MODELS.items()}
    upper |= {"CLAUDE_CODE_VIRTUAL_SECURITY_GROUP_ID": VIRTUAL_GROUP, "CLAUDE_CODE_SESSION_POOL_ENDPOINT": POOL}
    if generation == "internal":
        keys = {"CLAUDE_CODE_API_KEY": "made-elsewhere", "ANTHROPIC_API_KEY": "given-elsewhere"}
        return upper | keys | {"INSTANCE_ID": INSTANCE, "CLAUDECODEAPI_ENDPOINT": SERVICES["internal"], "USER_GROUP_OBJECT_ID": USERS}
    return (
        upper
        | {
            "FOUNDATIONALLM_INSTANCE_ID": INSTANCE,
            "SERVICE_CLAUDE_CODE_API_ENDPOINT_URL": SERVICES["quick-start"],
            "CLAUDE_CODE_USERS_GROUP_OBJECT_ID": USERS,
            "AZURE_KEY_VAULT_ENDPOINT": "https://vault.example/",
            "DEPLOY_TIME": "2026-01-28T10:00:00.0000000Z",
        }
        | {f"CLAUDE_CODE_{_words(label)}_GUID": guid for label, guid in guids.items()}
    )


def _words(label: str) -> str:
    return re.sub("([A-Z])", r"_\1", label).upper()


def filled(text: str, generation: str, given: Mapping[str, str]) -> str:
    """A template as the generation's own renderer would fill it; what that renderer would spoil or miss fails."""
    if generation == "quick-start":
        text = re.sub(r"\$\{env:(\w+)\}", lambda found: given[found[1]], text)
        assert not re.search("[$`]", text), "PowerShell would expand this"
        return text
    for name, value in given.items():
        text = re.sub("{{" + name + "}}", lambda _, value=value: value, text, flags=re.IGNORECASE)  # type: ignore[misc]
    left = [name for name in re.findall(r"\{\{(.*?)\}\}", text) if not name.startswith("foundationallm:")]
    assert not left, f"nobody fills {left}"
    assert "$" not in text
    return text


def object_ids(resources: list[dict[str, Any]]) -> dict[str, Any]:
    """The references of a package's workflow or tool as the platform's module expands them."""
    found = {}
    for resource in resources:
        key = f"/instances/{INSTANCE}/providers/{resource['type']}/{resource['name']}"
        properties: dict[str, Any] = {"object_role": resource["role"]} if "role" in resource else {}
        for *path, last, value in resource.get("properties", []):
            place = properties
            for name in path:
                place = place.setdefault(name, {})
            place[last] = value
        found[key] = {"object_id": key, "properties": properties}
    return found


def installed(generation: str, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The resources of filled templates by object id, without the stamps of time."""
    if generation == "internal":
        found = [*_of_package(files), *(json.loads(text) for path, text in files.items() if path.startswith("blobs/FoundationaLLM."))]
    else:
        found = [json.loads(text) for path, text in files.items() if path.endswith(".template.json")]
    return {body["object_id"]: {name: value for name, value in body.items() if name not in STAMPS} for body in found}


def _of_package(files: Mapping[str, str]) -> list[dict[str, Any]]:
    def part(name: str) -> Any:
        return json.loads(files[f"artifacts/{name}.json"])

    def at(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "object_id": f"/instances/{INSTANCE}/providers/{kind}/{body['name']}"}

    agent, workflow, tools = part("agent"), part("workflow"), part("tools")
    for user in (workflow, *tools):
        user["resource_object_ids"] = object_ids(user.pop("resources"))
    agent |= {"workflow": workflow, "tools": tools}
    prompts = [prompt | {"prefix": files[f"artifacts/{prompt['prefix']}"].rstrip("\n")} for prompt in part("prompts")]
    models = part("aiModels")
    for model in models:
        (model["endpoint_object_id"],) = object_ids([model["endpoint_object_id"]])
    return [
        at("FoundationaLLM.Agent/agents", agent),
        *(at("FoundationaLLM.Prompt/prompts", prompt) for prompt in prompts),
        *(at("FoundationaLLM.AIModel/aiModels", model) for model in models),
        *(at("FoundationaLLM.Configuration/apiEndpointConfigurations", endpoint) for endpoint in part("apiEndpointConfigurations")),
    ]
