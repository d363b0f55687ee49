"""What `build` makes, and that the strict models are the platform's: every sample of the contract comes out of them as it went in."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

from deployment_templates.errors import MergeError
from deployment_templates.resources import CacheReset, ResourceSet, build
from deployment_templates.resources.agents import Agent, AgentTool
from deployment_templates.resources.authorization import RoleAssignment, RoleAssignmentStore
from deployment_templates.resources.configuration import FeaturedAgent, ImportedItems, KeyValue, KeyVaultReference, PoolInSlot
from deployment_templates.resources.models import AIModel, Endpoint, Prompt, Workflow
from deployment_templates.resources.references import ReferenceAdditions, ReferenceEntry
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.planning import Planned, SandboxLimits, make_plan
from orchestration_service.platform_keys import field_of, is_model_key
from orchestration_service.security import API_KEY_HEADER
from orchestration_service.settings import Settings
from tests.deployment_templates.installing import INSTANCE, MODELS, USERS, profile
from workflow_schemas.platform import CompletionRequest, ServiceStatusInfo
from workflow_schemas.properties import PLATFORM_STOP_SECONDS

SAMPLES = Path(__file__).parents[1] / "contracts" / "samples" / "resources"
FILLED: Mapping[str, str] = {
    "{{instanceId}}": INSTANCE,
    "${env:FOUNDATIONALLM_INSTANCE_ID}": INSTANCE,
    "${env:SERVICE_CLAUDE_CODE_API_ENDPOINT_URL}": "https://claude-code.example",
    "{{serviceNamespaceName}}": "fllm",
    "{{claudeCodeVirtualSecurityGroupId}}": "77777777-2222-4333-8444-555555555555",
    "{{claudeCodeUsersGroupObjectId}}": USERS,
    "{{claudeCodeAgentReaderGuid}}": "77777777-2222-4333-8444-555555555501",
    "{{claudeCodeWorkflowReaderGuid}}": "77777777-2222-4333-8444-555555555502",
    "{{claudeCodeVsgAgentReaderGuid}}": "77777777-2222-4333-8444-555555555503",
}
MODELS_OF_SAMPLES: Mapping[str, Any] = {
    "agent.claude-code.generic-workflow": Agent,
    "agent.claude-code.requires-dotnet-patch": Agent,
    "aimodel.ClaudeSonnetCompletionAIModel": AIModel,
    "apiEndpoint.Anthropic": Endpoint,
    "apiEndpoint.ClaudeCode.quick-start-template": Endpoint,
    "apiEndpoint.ClaudeCode.standard-template": Endpoint,
    "appConfigurations.claude-code": list[KeyVaultReference | KeyValue],
    "package.appConfigurations": list[KeyVaultReference],
    "appconfig-kvset.claude-code": ImportedItems,
    "prompt.claude-code-system": Prompt,
    "resource-references.additions": dict[str, ReferenceAdditions],
    "roleAssignment.management-api-body": RoleAssignment,
    "roleAssignments.store-fragment": RoleAssignmentStore,
    "workflow.ClaudeCodeAgentWorkflow.generic-type": Workflow,
    "workflow.ClaudeCodeAgentWorkflow.requires-dotnet-patch": Workflow,
}


def sample(name: str) -> Any:
    text = (SAMPLES / f"{name}.json").read_text(encoding="utf-8")
    for placeholder, value in FILLED.items():
        text = text.replace(placeholder, value)
    return json.loads(text)


@pytest.mark.parametrize("name", MODELS_OF_SAMPLES)
def test_a_sample_comes_out_as_it_went_in(name: str) -> None:
    reader: TypeAdapter[Any] = TypeAdapter(MODELS_OF_SAMPLES[name])
    read = reader.validate_json(json.dumps(sample(name)))
    assert reader.dump_python(read, mode="json", exclude_unset=True) == sample(name)


@pytest.mark.parametrize(
    ("model", "name", "change"),
    [
        (Agent, "agent.claude-code.generic-workflow", {"vectorization": {}}),
        (Agent, "agent.claude-code.generic-workflow", {"type": "knowledge-management"}),
        (Agent, "agent.claude-code.generic-workflow", {"name": "other"}),
        (Endpoint, "apiEndpoint.ClaudeCode.standard-template", {"url": "http://host/claude"}),
        (Endpoint, "apiEndpoint.ClaudeCode.standard-template", {"authentication_type": "AzureIdentity"}),
        (Endpoint, "apiEndpoint.Anthropic", {"timeout_seconds": "600"}),
        (Workflow, "workflow.ClaudeCodeAgentWorkflow.generic-type", {"type": "ExternalAgentWorkflow"}),
        (Workflow, "workflow.ClaudeCodeAgentWorkflow.generic-type", {"properties": {"max_turns": 40}}),
        (AIModel, "aimodel.ClaudeSonnetCompletionAIModel", {"model_parameters": None}),
    ],
    ids=["removed field", "old type", "another's id", "path in address", "no key", "text", "spelling", "number", "null parameters"],
)
def test_what_the_platform_would_stumble_over_is_refused(model: type[BaseModel], name: str, change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate_json(json.dumps(sample(name) | change))


def test_an_agent_needs_a_model_and_a_prompt() -> None:
    """Without one of them the platform fails before it calls anybody; a `Knowledge Search` tool keeps an agent from being saved."""
    agent = sample("agent.claude-code.generic-workflow")
    agent["workflow"]["resource_object_ids"].popitem()
    with pytest.raises(ValidationError, match="main_prompt"):
        Agent.model_validate_json(json.dumps(agent))
    with pytest.raises(ValidationError, match="category"):
        AgentTool.model_validate_json('{"name": "t", "package_name": "p", "category": "Knowledge Search"}')


def test_an_unknown_kind_of_entry_is_refused() -> None:
    """One line of another kind stops every listing of its provider."""
    with pytest.raises(ValidationError):
        ReferenceEntry.model_validate({"Name": "a", "Filename": "/FoundationaLLM.Agent/a.json", "Type": "claude-code", "Deleted": False})


@pytest.fixture(scope="module")
def built() -> ResourceSet:
    return build(profile("standard", workflow={"max_turns": 25, "allowed_tools": ["Read", "Grep"]}))


def test_the_same_profile_gives_the_same_installation(built: ResourceSet) -> None:
    """Identifiers of role assignments too, so that installing twice makes nothing twice."""
    again = build(profile("standard", workflow={"max_turns": 25, "allowed_tools": ["Read", "Grep"]}))
    assert again == built
    assert len({role.name for role in built.roles}) == len(built.roles)


def test_steps_are_in_the_order_of_a_first_installation(built: ResourceSet) -> None:
    """Secrets before what refers to them, the service before the platform is told of it, seeded files before the cache is reset."""
    order = ["secret", "app-configuration", "service-ready", "resource", "seeded-resource", "cache-reset", "resource", "role-assignment"]
    kinds = [step.kind for step in built.steps()]
    assert [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind] == [*order, "app-configuration", "restart"]
    assert [secret.key for secret in built.secrets if secret.generated] == ["FoundationaLLM:APIEndpoints:ClaudeCode:Essentials:APIKey"]


def test_the_command_after_seeding_is_the_platforms() -> None:
    assert CacheReset(provider="FoundationaLLM.Agent", why="").body == sample("management.cache-reset-command")


def test_our_pool_is_where_the_platform_looks_for_pools(built: ResourceSet) -> None:
    (entry,) = (entry for entry in built.configuration if entry.merge is not None)
    known = sample("code-execution-custom-container")
    assert json.loads(entry.desired(None)).keys() == known.keys()
    assert json.loads(entry.desired(None))["Endpoints"].keys() == known["Endpoints"].keys()


def test_the_service_asks_for_the_slot_its_pool_is_in() -> None:
    """Only where that is not the usual one; the key is that of a setting, with a value it takes."""
    installation = build(profile("standard", sandbox={"slot": "CSharp", "pool_url": "https://ours"}))
    (entry,) = (entry for entry in installation.configuration if entry.key.endswith(":SessionLanguage"))
    taken = get_args(Settings.model_fields[field_of(entry.key, Settings.model_fields) or ""].annotation)
    assert entry.value in taken


def test_a_pool_takes_its_slot_and_gives_it_back() -> None:
    """The stock pool stays behind ours, which is the one that is used, and is the first again afterwards."""
    stock = '{"Endpoints": {"Python": ["https://stock"], "CSharp": []}}'
    pool = PoolInSlot(slot="Python", url="https://ours")
    added = pool.added(stock)
    assert json.loads(added) == {"Endpoints": {"Python": ["https://ours", "https://stock"], "CSharp": []}}
    assert pool.added(added) == added
    assert json.loads(pool.removed(added)) == json.loads(stock)
    assert json.loads(PoolInSlot(slot="CSharp", url="https://ours").added(stock))["Endpoints"]["Python"] == ["https://stock"]
    with pytest.raises(MergeError, match="nothing was merged"):
        pool.added("https://stock")


@pytest.mark.parametrize(
    ("current", "added", "removed"),
    [
        ("true", "claude-code|*", "true"),
        (None, "claude-code|*", "true"),
        ("", "claude-code|*", "true"),
        ("FoundationaLLM|*,Other", "claude-code|*,FoundationaLLM|*,Other", "FoundationaLLM|*,Other"),
        ("Other, claude-code", "Other,claude-code|*", "Other"),
    ],
    ids=["as shipped", "missing", "empty", "others", "there already"],
)
def test_the_agent_joins_the_featured_ones(current: str | None, added: str, removed: str) -> None:
    """An empty value would stop the portal's list, so it is never left behind."""
    featured = FeaturedAgent(name="claude-code", pinned=True)
    assert featured.added(current) == added
    assert featured.added(added) == added
    assert featured.removed(added) == removed


def completion(built: ResourceSet, *, saved_in_portal: bool = False) -> CompletionRequest:
    """The request the Orchestration API makes of an installation (contract: orchestration §5.1)."""
    by_id = {resource.body["object_id"]: resource.body for resource in built.resources}
    agent = built.agents[0].body
    workflow = agent["workflow"]
    if saved_in_portal:  # it takes the first workflow of the type, which may be another one
        workflow["properties"] = {"of": "another"}
        workflow["resource_object_ids"] = {key: use for key, use in workflow["resource_object_ids"].items() if "/workflows/" not in key}
    wanted = [key for key, use in workflow["resource_object_ids"].items() if use["properties"].get("object_role") or "/workflows/" in key]
    wanted += [key for tool in agent["tools"] for key in tool["resource_object_ids"]]
    objects: dict[str, Any] = {key: by_id[key] for key in wanted if key in by_id}
    objects |= {body["endpoint_object_id"]: by_id[body["endpoint_object_id"]] for body in objects.values() if "endpoint_object_id" in body}
    objects |= {"FoundationaLLM.InstanceId": built.instance_id, "ToolNames": [tool["name"] for tool in agent["tools"]]}
    objects |= {tool["name"]: {} for tool in agent["tools"]}
    return CompletionRequest.model_validate(
        {
            "operation_id": "b7a9e9a0-3b51-4d0e-9a3e-2d5a3b0a1c55",
            "session_id": "conversation",
            "user_prompt": "Fix the failing test.",
            "agent": agent,
            "objects": objects,
        }
    )


def planned(built: ResourceSet, *, saved_in_portal: bool = False) -> Planned:
    request = completion(built, saved_in_portal=saved_in_portal)
    return make_plan(request, run_id="run-00000001", turn_number=1, limits=SandboxLimits())


@pytest.mark.parametrize("saved_in_portal", [False, True], ids=["as installed", "after a save in the portal"])
def test_a_turn_of_the_installed_agent_is_planned(built: ResourceSet, saved_in_portal: bool) -> None:
    """Its settings hold also when the portal has put another workflow in the place of ours."""
    turn = planned(built, saved_in_portal=saved_in_portal)
    assert turn.remarks == (("The workflow property 'of' is not known and has no effect.",) if saved_in_portal else ())
    assert (turn.plan.model, turn.plan.tools, turn.plan.limits.max_turns) == (MODELS["sonnet"], ("Read", "Grep"), 25)
    assert turn.plan.system_prompt.startswith("You are a careful software engineer")


PROVIDERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "anthropic": ({}, "anthropic"),
    "foundry": ({"provider": "foundry", "url": "https://mine.services.ai.azure.com/anthropic"}, "foundry"),
    "foundry by identity": (
        {"provider": "foundry", "url": "https://mine.services.ai.azure.com/anthropic", "authentication": "identity"},
        "foundry",
    ),
    "bedrock": ({"provider": "bedrock", "url": "https://bedrock-runtime.eu-west-1.amazonaws.com"}, "bedrock"),
    "bedrock by identity": (
        {
            "provider": "bedrock",
            "url": "https://bedrock-runtime.eu-west-1.amazonaws.com",
            "authentication": "identity",
            "aws_role_arn": "arn:aws:iam::123456789012:role/claude-code",
            "scope": "api://claude-code-aws/.default",
        },
        "bedrock",
    ),
    "vertex": ({"provider": "vertex", "url": "https://europe-west1-aiplatform.googleapis.com"}, "vertex"),
    "vertex by identity": (
        {
            "provider": "vertex",
            "url": "https://europe-west1-aiplatform.googleapis.com/v1/projects/p-1/locations/europe-west1",
            "authentication": "identity",
        },
        "vertex",
    ),
    "gateway": ({"provider": "gateway", "url": "https://gateway.example", "header": "api-key"}, "anthropic-compatible"),
}
ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "project_id": "p-1",
        "client_email": "c@p-1.iam.gserviceaccount.com",
        "private_key": "-",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
)


@pytest.mark.anyio
@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_service_finds_its_way_to_the_models(name: str) -> None:
    """To the main one and the small one, with the key whose name the installation has an entry for, and with no other."""
    models, provider = PROVIDERS[name]
    installation = build(profile("standard", models={"sonnet": "main-model", "haiku": "small-model", **models}))
    secrets = {secret.key for secret in installation.secrets if not secret.generated}

    async def key_of(key: str) -> SecretStr | None:
        assert is_model_key(key)
        return SecretStr(ACCOUNT if provider == "vertex" else "a-key-of-the-operator") if key in secrets else None

    routes = await ModelRoutes(keys=key_of).of_turn(planned(installation), "dana@contoso.example")
    assert routes.remarks == ()
    assert routes.small is not None
    assert [(routed.route.provider, routed.model) for routed in (routes.main, routes.small)] == [
        (provider, "main-model"),
        (provider, "small-model"),
    ]
    assert len(secrets) == (0 if "identity" in name else 1)


def test_the_service_is_what_its_endpoint_says(built: ResourceSet) -> None:
    """Name, header and patience are those of this version; its key is the one the service reads."""
    endpoint = next(resource.body for resource in built.endpoints if resource.name == ServiceStatusInfo().name)
    assert endpoint["authentication_parameters"]["api_key_header_name"] == API_KEY_HEADER
    assert field_of(endpoint["authentication_parameters"]["api_key_configuration_name"], ["api_key"]) == "api_key"
    assert endpoint["timeout_seconds"] == PLATFORM_STOP_SECONDS
    assert built.agents[0].body["workflow"]["workflow_host"] == endpoint["name"]


def test_everything_that_is_referred_to_is_installed(built: ResourceSet) -> None:
    """Uses of the agent, endpoints of models, scopes of roles, and the actions its readers inherit."""
    by_id = {resource.body["object_id"]: resource.body for resource in built.resources}
    agent = built.agents[0].body
    used = [key for user in (agent["workflow"], *agent["tools"]) for key in user["resource_object_ids"]]
    used += [model.body["endpoint_object_id"] for model in built.models]
    assert {*used, *(role.body["scope"] for role in built.roles)} <= by_id.keys()
    kinds = {f"{key.split('/providers/')[1].rpartition('/')[0]}/read" for key in used}
    assert kinds <= set(agent["inheritable_authorizable_actions"])


def test_uploads_of_text_are_possible_with_a_knowledge_tool() -> None:
    """One tool with all three roles, in a category an agent can be saved with; a turn of the agent is planned as before."""
    names = {"data_pipeline": "Uploads", "knowledge_unit": "Conversations", "private_store_knowledge_unit": "Agents"}
    installation = build(profile("standard", uploads={"mode": "knowledge-tool", **names}))
    _, tool = installation.agents[0].body["tools"]
    assert tool["category"] == "Generic"
    assert {(key.rpartition("/")[2], use["properties"]["object_role"]) for key, use in tool["resource_object_ids"].items()} == {
        ("Uploads", "file_upload_data_pipeline"),
        ("Conversations", "conversation_knowledge_unit"),
        ("Agents", "agent_private_store_knowledge_unit"),
    }
    assert planned(installation).remarks == ()


def test_uploads_of_text_are_possible_without_pipelines() -> None:
    """Text goes off the list, whatever else is on it, and comes back on removal."""
    installation = build(profile("standard", uploads={"mode": "plain-files", "plain_extensions": ["py", "md"]}))
    (entry,) = (entry for entry in installation.configuration if entry.key.endswith(":KnowledgeSearchFileExtensions"))
    assert entry.merge is not None
    assert entry.desired("md, own, py, pdf") == "own, pdf"
    assert entry.merge.removed("own, pdf") == "md, py, own, pdf"
    assert "pdf" in (entry.value or "")
