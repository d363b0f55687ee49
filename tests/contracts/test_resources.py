"""The platform's resources: the ones we read make a turn, the ones others will write name what this version answers to.

Samples are templates: `{{…}}` stands for what an installation fills in.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.identity import UserIdentity
from orchestration_service.brokers.route import ModelParameters
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.planning import Planned, SandboxLimits, make_plan
from orchestration_service.remarks import Remarks
from orchestration_service.routes import status
from orchestration_service.security import API_KEY_HEADER, Doorkeeper
from orchestration_service.sessions import SessionSettings
from orchestration_service.settings import Settings
from workflow_schemas.platform import WORKFLOW_TYPES, Agent, AIModel, CompletionRequest, EndpointConfiguration, Prompt, ServiceStatusInfo
from workflow_schemas.properties import PLATFORM_STOP_SECONDS, TOOLS, WorkflowProperties

SAMPLES = Path(__file__).parent / "samples"
TEMPLATE = Path(__file__).parents[2] / "deployment_templates" / "embedded" / "completion.json"
INSTANCE = "11111111-2222-3333-4444-555555555555"
FILLED = {"instanceId": INSTANCE, "claudeModelName": "claude-sonnet-5-5", "anthropicApiVersion": "2023-06-01"}
SERVICE_KEY = "FoundationaLLM:APIEndpoints:ClaudeCode:Essentials:APIKey"
MODEL_KEY = "FoundationaLLM:APIEndpoints:Anthropic:Essentials:APIKey"

AGENT = "agent.claude-code.generic-workflow"
MODEL = "aimodel.ClaudeSonnetCompletionAIModel"
ENDPOINT = "apiEndpoint.Anthropic"
PROMPT = "prompt.claude-code-system"
WORKFLOW = "workflow.ClaudeCodeAgentWorkflow.generic-type"
OTHER_AGENT = "agent.claude-code.requires-dotnet-patch"
OTHER_WORKFLOW = "workflow.ClaudeCodeAgentWorkflow.requires-dotnet-patch"


def sample(name: str, folder: str = "resources") -> Any:
    text = (SAMPLES / folder / f"{name}.json").read_text(encoding="utf-8")
    for placeholder, value in FILLED.items():
        text = text.replace("{{" + placeholder + "}}", value)
    return json.loads(text)


def planned(agent: str = AGENT, workflow: str = WORKFLOW, *, own: Mapping[str, Any] | None = None, with_files: bool = False) -> Planned:
    """Plan a turn from the resources as the Orchestration API would send them; `own` replaces the properties of the agent's workflow."""
    resources = [sample(name) for name in (MODEL, ENDPOINT, PROMPT, workflow)]
    body = {"user_prompt": "Fix it.", "agent": sample(agent), "objects": {item["object_id"]: item for item in resources}}
    if own is not None:
        body["agent"]["workflow"]["properties"] = own
    if with_files:
        body["file_history"] = sample("llm_completion_request", "orchestration")["file_history"]
    request = CompletionRequest.model_validate(body)
    return make_plan(request, run_id="run-00000001", turn_number=1, limits=SandboxLimits())


@pytest.mark.parametrize(("agent", "workflow"), [(AGENT, WORKFLOW), (OTHER_AGENT, OTHER_WORKFLOW)], ids=["generic", "patched"])
def test_the_resources_make_a_turn(agent: str, workflow: str) -> None:
    """Properties typed as text are understood, what is not understood is said, and the parts fit together."""
    turn = planned(agent, workflow)
    assert (turn.plan.limits.max_turns, turn.plan.tools) == (40, ("Read", "Write", "Edit", "Glob", "Grep", "Bash"))
    assert turn.remarks == ("The workflow property 'permission_mode' is not known and has no effect.",)
    assert turn.plan.model == turn.models.main.model == "claude-sonnet-5-5"
    assert turn.plan.system_prompt.startswith("You are a coding agent on the platform.")
    assert turn.models.main.parameters == ModelParameters(temperature=0, max_tokens=8192)
    assert turn.models.main.endpoint.name == "Anthropic"


def test_files_of_the_conversation_are_its_inputs() -> None:
    turn = planned(with_files=True)
    assert [(item.name, item.kind) for item in turn.plan.inputs] == [("sales.csv", "file")]
    assert turn.uploads == ("sales.csv",)


def test_a_saved_agent_keeps_what_its_workflow_resource_says() -> None:
    """The Management Portal replaces an agent's own properties by those of the workflow resource."""
    turn = planned(own=sample(WORKFLOW)["properties"])
    assert (turn.plan.limits.max_turns, turn.plan.tools) == (40, TOOLS)


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"max_turns": "many"}, "The workflow property 'max_turns' was not used"),
        ({"max_turns": "9000"}, "The workflow property 'max_turns' is out of its bounds; 500 is in force"),
        ({"allowed_tools": "Read, webfetch"}, "The tools 'webfetch' are not available"),
        ({"permissionMode": "plan"}, "The workflow property 'permissionMode' is not known"),
    ],
    ids=["no number", "too large", "unknown tool", "misspelt"],
)
def test_nothing_is_dropped_in_silence(changes: dict[str, str], remark: str) -> None:
    remarks = planned(own=changes).remarks
    assert any(found.startswith(remark) for found in remarks), remarks


@pytest.mark.anyio
async def test_the_model_is_called_where_and_how_its_endpoint_says() -> None:
    async def key_of(name: str) -> SecretStr | None:
        return SecretStr("sk-model") if name == MODEL_KEY else None

    routes = await ModelRoutes(keys=key_of).of_turn(planned(), "dana@contoso.example")
    assert (len(routes.all), routes.remarks) == (1, ())
    route = routes.main.route
    assert (route.provider, route.base_url, route.model) == ("anthropic", "https://api.anthropic.com", "claude-sonnet-5-5")
    assert (route.api_key_header, route.api_key) == ("x-api-key", SecretStr("sk-model"))
    assert route.parameters.max_tokens == 8192


def test_the_agent_in_the_core_apis_list_is_the_agent() -> None:
    """What the User Portal shows in its list is the resource, shortened."""
    (item,) = sample("agentsList.core-api-item")
    listed, whole = Agent.model_validate(item["resource"]), Agent.model_validate(sample(AGENT))
    assert (listed.type, listed.name, listed.object_id, listed.display_name) == (
        whole.type,
        whole.name,
        whole.object_id,
        whole.display_name,
    )
    assert listed.properties.keys() == whole.properties.keys()
    assert same_kinds(item["resource"], sample(AGENT)) == []


# The other direction: what we write has the shape of the samples.

FREE = frozenset({"properties", "model_parameters"})
"""Settings of any shape."""


def same_kinds(ours: Any, known: Any, path: str = "") -> list[str]:
    """Name what ours has and the sample has not, or has with another JSON type."""
    if isinstance(ours, dict) and isinstance(known, dict):
        found: list[str] = []
        for key, value in ours.items():
            if key.startswith("/"):
                found += same_kinds(value, next(item for name, item in known.items() if _kind(name) == _kind(key)), f"{path}.*")
            elif key not in known:
                found.append(f"{path}.{key} is unknown")
            elif key not in FREE:
                found += same_kinds(value, known[key], f"{path}.{key}")
            elif not isinstance(value, type(known[key])):
                found.append(f"{path}.{key} is no object")
        return found
    if known is None or isinstance(ours, type(known)):
        return []
    return [f"{path} is a {type(ours).__name__}, not a {type(known).__name__}"]


def _kind(object_id: str) -> str:
    return object_id.split("/providers/")[1].rpartition("/")[0]


def template() -> dict[str, Any]:
    text = TEMPLATE.read_text(encoding="utf-8").replace("{{instanceId}}", INSTANCE)
    read: dict[str, Any] = json.loads(text)
    return read


@pytest.mark.parametrize(
    ("part", "name"), [("/aiModels/", MODEL), ("/apiEndpointConfigurations/", ENDPOINT), ("/prompts/", PROMPT)], ids=lambda part: part
)
def test_our_resources_have_the_fields_of_the_samples(part: str, name: str) -> None:
    (ours,) = [value for key, value in template()["objects"].items() if part in key]
    assert same_kinds(ours, sample(name)) == []


def test_our_agent_has_the_fields_of_the_sample() -> None:
    ours = template()["agent"]
    assert same_kinds(ours, sample(AGENT)) == []
    workflow, known = ours["workflow"], sample("llm_completion_request", "orchestration")["agent"]["workflow"]
    assert {name: workflow[name] for name in ("type", "workflow_host")} == {name: known[name] for name in ("type", "workflow_host")}
    assert workflow["properties"].keys() == known["properties"].keys()
    assert workflow["properties"]["claude_code"].keys() <= WorkflowProperties.model_fields.keys()


def test_our_completion_has_the_fields_of_the_sample() -> None:
    known = sample("llm_completion_request", "orchestration")
    ours = {name: value for name, value in template().items() if name not in ("agent", "objects")}
    assert same_kinds(ours, known) == []
    constants = {name for name in template()["objects"] if not name.startswith("/")}
    assert constants <= known["objects"].keys()


def test_a_field_of_another_shape_would_be_found() -> None:
    """The comparison above does find what it is for."""
    spoilt = {"name": 1, "made_up": "x", "properties": [], "workflow": {"resource_object_ids": {}}}
    assert len(same_kinds(spoilt, sample(AGENT))) == 3


# Resources that are written elsewhere: every name in them that this version answers to.


ENDPOINTS = {
    "standard": sample("apiEndpoint.ClaudeCode.standard-template"),
    "quick start": sample("apiEndpoint.ClaudeCode.quick-start-template"),
    "orchestration": sample("api_endpoint_configuration", "orchestration"),
    "package": sample("package.apiEndpointConfigurations")[0],
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", ENDPOINTS)
async def test_the_service_is_what_its_endpoint_says(name: str) -> None:
    """Name, category, key header, status address and patience of the resource are those of the service."""
    endpoint = ENDPOINTS[name]
    ours = ServiceStatusInfo()
    assert (endpoint["name"], endpoint["category"], endpoint["authentication_type"]) == (ours.name, "ExternalOrchestration", "APIKey")
    assert endpoint["authentication_parameters"] == {"api_key_configuration_name": SERVICE_KEY, "api_key_header_name": API_KEY_HEADER}
    assert SERVICE_KEY in (Settings.model_fields["api_key"].description or "")
    settings = Settings(instance_id=INSTANCE, api_key=SecretStr("the-key-of-the-service"), _env_file=None)
    assert settings.sync_timeout_seconds < endpoint["timeout_seconds"] == PLATFORM_STOP_SECONDS
    app = FastAPI()
    doorkeeper = Doorkeeper(instance_id=INSTANCE, api_key=settings.api_key)
    app.include_router(status.router(settings, doorkeeper=doorkeeper, remarks=Remarks()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service") as client:
        answer = await client.get(endpoint["status_endpoint"])
    assert (answer.status_code, answer.json()["name"]) == (200, endpoint["name"])


def test_the_service_admits_who_comes_as_the_endpoint_says() -> None:
    parameters = ENDPOINTS["standard"]["authentication_parameters"]

    class Headers:
        def getlist(self, key: str) -> list[str]:
            identity = UserIdentity.from_header(json.dumps(sample("user_identity_header", "orchestration"))).to_header()
            sent = {parameters["api_key_header_name"]: "the-key", "X-USER-IDENTITY": identity}
            return [value for name, value in sent.items() if name.casefold() == key.casefold()]

    caller = Doorkeeper(instance_id=INSTANCE, api_key=SecretStr("the-key")).admit(INSTANCE, Headers())
    assert caller.upn == sample("user_identity_header", "orchestration")["upn"]


def test_the_model_endpoint_of_the_package_is_the_resource() -> None:
    """Packages leave out what the importer fills in; what they say is what the resource says."""
    endpoint = sample("package.apiEndpointConfigurations")[1]
    read = EndpointConfiguration.model_validate(endpoint)
    assert read.url_for("anybody") == EndpointConfiguration.model_validate(sample(ENDPOINT)).url
    assert read.api_key_configuration_name == MODEL_KEY
    assert endpoint.keys() <= sample(ENDPOINT).keys()


@pytest.mark.parametrize(
    ("package", "resource", "model"),
    [
        ("package.agent", AGENT, Agent),
        ("package.aiModels", MODEL, AIModel),
        ("package.prompts", PROMPT, Prompt),
        ("package.workflowTypes", WORKFLOW, None),
    ],
    ids=["agent", "model", "prompt", "workflow type"],
)
def test_a_packages_parts_are_the_resources_in_short(package: str, resource: str, model: Any) -> None:
    """Same names and kinds; where a package refers to another part by name, the resource has its object id."""
    found, known = sample(package), sample(resource)
    (part,) = found if isinstance(found, list) else [found]
    assert part.keys() <= known.keys()
    assert (part["name"], part["type"]) == (known["name"], known["type"])
    if "endpoint_object_id" in part:
        reference = part.pop("endpoint_object_id")
        assert known["endpoint_object_id"].endswith(f"/{reference['type']}/{reference['name']}")
    if model is not None:
        assert model.model_validate(part).name == known["name"]


def test_the_packages_workflow_is_ours_and_names_the_parts() -> None:
    """Roles and settings are those the resolver and the planner look for."""
    workflow, known = sample("package.workflow"), sample(AGENT)["workflow"]
    assert {name: workflow[name] for name in workflow.keys() & known.keys() - {"properties"}}.items() <= known.items()
    assert workflow["type"] in WORKFLOW_TYPES
    assert workflow["workflow_host"] == ServiceStatusInfo().name
    assert workflow["properties"] == sample(WORKFLOW)["properties"]
    named = {(f"{item['type']}/{item['name']}", item.get("role")) for item in workflow["resources"]}
    assert named == {
        (object_id.split("/providers/")[1], reference["properties"].get("object_role"))
        for object_id, reference in known["resource_object_ids"].items()
    }


def test_the_sandbox_tool_asks_for_the_sandbox_we_ask_for() -> None:
    (tool,) = sample("package.tools")
    (known,) = sample(AGENT)["tools"]
    assert {name: tool[name] for name in tool.keys() & known.keys()}.items() <= known.items()
    settings = SessionSettings()
    assert tool["properties"]["code_session_endpoint_provider"] == settings.endpoint_provider == DEFAULT_PROVIDER_NAME
    assert tool["properties"]["code_session_language"] == settings.language


def test_pools_are_named_by_the_languages_a_session_can_ask_for() -> None:
    endpoints = sample("code-execution-custom-container")["Endpoints"]
    assert endpoints.keys() == sample("config.custom_container", "context_api")["Endpoints"].keys()
    assert endpoints[SessionSettings().language] != []


def test_the_agent_lets_its_readers_read_all_parts_of_it() -> None:
    """Without these actions a user of the agent gets it without model, endpoint or prompt."""
    agent, model = sample(AGENT), sample(MODEL)
    parts = [*agent["workflow"]["resource_object_ids"], model["endpoint_object_id"]]
    wanted = {f"{_kind(object_id)}/read" for object_id in parts}
    assert wanted <= set(agent["inheritable_authorizable_actions"])
    assert agent["inheritable_authorizable_actions"] == sample("package.agent")["inheritable_authorizable_actions"]


CONFIGURATIONS: Mapping[str, Any] = {
    "appConfigurations.claude-code": sample("appConfigurations.claude-code"),
    "package.appConfigurations": sample("package.appConfigurations"),
    "appconfig-kvset.claude-code": sample("appconfig-kvset.claude-code")["items"],
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_configuration_holds_the_keys_the_endpoints_name(name: str) -> None:
    """Secrets live in the key vault, under names it can have; nothing of the kind is written down."""
    entries = {entry["key"]: entry for entry in CONFIGURATIONS[name]}
    wanted = {SERVICE_KEY} if "kvset" in name else {SERVICE_KEY, MODEL_KEY}  # the kvset leaves the model's key to the operator
    assert wanted <= entries.keys()
    assert all(entry["key"].startswith(("FoundationaLLM:APIEndpoints:", "FoundationaLLM:UserPortal:")) for entry in entries.values())
    for key in wanted:
        secret = entries[key]["key_vault_secret_name"]
        assert secret == f"foundationallm-apiendpoints-{key.split(':')[2].lower()}-apikey"
        assert "keyvaultref" in entries[key]["content_type"]
        assert any(mark in entries[key]["value"] for mark in ("{{", "${env:"))


def test_the_agent_is_featured_under_its_name() -> None:
    entries = {entry["key"]: entry["value"] for entry in CONFIGURATIONS["appConfigurations.claude-code"]}
    featured = entries["FoundationaLLM:UserPortal:Configuration:FeaturedAgentNames"].split(",")
    assert sample(AGENT)["name"] in [entry.partition("|")[0] for entry in featured]


def test_each_resource_is_in_its_index() -> None:
    index = {
        entry["Name"]: (provider.removesuffix("/_resource-references.json"), entry)
        for provider, content in sample("resource-references.additions").items()
        for entry in content["ResourceReferences"]
    }
    for name in (AGENT, MODEL, ENDPOINT, "apiEndpoint.ClaudeCode.standard-template", PROMPT, WORKFLOW):
        resource = sample(name)
        provider, entry = index.pop(resource["name"])
        assert f"/providers/{provider}/" in resource["object_id"]
        assert entry["Filename"] == f"/{provider}/{resource['name']}.json"
        # the workflow's blob goes by one name whatever its discriminator is
        assert entry["Type"] == ("workflow" if name == WORKFLOW else resource["type"])
    assert index == {}


def test_roles_are_given_on_what_exists() -> None:
    known = {sample(AGENT)["object_id"], sample(WORKFLOW)["object_id"]}
    body = sample("roleAssignment.management-api-body")
    stored = sample("roleAssignments.store-fragment")["role_assignments"]
    assert {entry["scope"] for entry in [body, *stored]} <= known
    assert {entry["role_definition_id"] for entry in [body, *stored]} == {body["role_definition_id"]}
    assert sample(AGENT)["virtual_security_group_id"] in [entry["principal_id"] for entry in stored]
    ((_, kind, name),) = sample("package.roleAssignments")[0]["role_assignments"]
    assert body["scope"].endswith(f"/{kind}/{name}")


def test_a_cache_reset_is_for_all_providers() -> None:
    """After resources were written as blobs, one command makes every service read them; it names no service and no resource."""
    command = sample("management.cache-reset-command")
    assert command == {
        "type": "send-event",
        "target_service_name": None,
        "event_type": "FoundationaLLM.ResourceProvider.Cache.ResetCommand",
    }
