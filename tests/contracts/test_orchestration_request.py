"""The platform's completion request, read from the carried samples and from every odd form the contract tells of."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workflow_schemas.platform import (
    AIModel,
    CompletionRequest,
    EndpointConfiguration,
    Prompt,
    ResourceInvalid,
    ResourceMissing,
    ResourceProblem,
    RoleMissing,
    Workflow,
    resolve_main_model,
    resolve_prompt,
    to_wire,
)

SAMPLES = Path(__file__).parent / "samples"
MODELS = "/providers/FoundationaLLM.AIModel/aiModels/"
PROMPTS = "/providers/FoundationaLLM.Prompt/prompts/"


def sample(name: str) -> Any:
    return json.loads((SAMPLES / name).read_text(encoding="utf-8"))


@pytest.fixture
def body() -> dict[str, Any]:
    read: dict[str, Any] = sample("orchestration/llm_completion_request.json")
    return read


def key_of(body: dict[str, Any], part: str) -> str:
    return next(str(key) for key in body["objects"] if part in key)


def test_the_sample_is_read(body: dict[str, Any]) -> None:
    request = CompletionRequest.model_validate(body)
    assert (request.agent.name, request.session_id) == ("RepoHelper", "20260203-091512-Qm9iU3RvbmVLZXkxMjM0NQ")
    assert request.prompt == "Chart the monthly totals and give me an Excel summary."
    assert [message.is_from_user for message in request.message_history] == [True, False]
    assert request.message_history[1].content_artifacts[0].metadata["prompt_tokens"] == "812"
    (attached,) = request.attached_files
    assert attached.file_id == "file-20260203-091455-dGVzdEZpbGVJZDAwMDAwMQ"
    assert request.agent.workflow is not None
    assert request.agent.workflow.properties["claude_code"]["max_turns"] == 40


def test_what_we_read_says_the_same_when_we_send_it(body: dict[str, Any]) -> None:
    """Our own callers write requests with the same models: nothing we read may come out changed."""
    request = CompletionRequest.model_validate(body)
    written = json.loads(to_wire(request))
    assert CompletionRequest.model_validate(written) == request
    assert written["objects"] == body["objects"]
    assert written["user_prompt"] == body["user_prompt"]


def test_the_main_model_is_resolved(body: dict[str, Any]) -> None:
    model, endpoint, overrides = resolve_main_model(CompletionRequest.model_validate(body))
    assert (model.deployment_name, endpoint.provider, overrides) == ("claude-sonnet-4-5", "anthropic", {"temperature": 0})
    assert endpoint.api_key_configuration_name == "FoundationaLLM:APIEndpoints:AnthropicAPI:Essentials:APIKey"


@pytest.mark.parametrize(
    ("role", "prefix"),
    [
        ("main_prompt", "You are a careful assistant that works inside a sandbox."),
        ("files_prompt", "Files in this conversation are listed below."),
    ],
)
def test_prompts_are_resolved_by_key(body: dict[str, Any], role: Any, prefix: str) -> None:
    """The second of two adjacent prompts has no ``type``: the key alone says what it is."""
    assert resolve_prompt(CompletionRequest.model_validate(body), role).prefix == prefix


def test_a_wrong_type_in_objects_does_not_matter(body: dict[str, Any]) -> None:
    for value in body["objects"].values():
        if isinstance(value, dict):
            value["type"] = "quite-wrong"
    assert resolve_main_model(CompletionRequest.model_validate(body)).model.name == "ClaudeSonnet"


def test_nulls_count_as_absent(body: dict[str, Any]) -> None:
    """Wherever a null may turn up, the field reads as if it had not been sent."""
    for name in ("session_id", "user_prompt_rewrite", "message_history", "file_history", "attachments"):
        body[name] = None
    body["agent"].update(display_name=None, tools=None, properties=None, show_content_artifacts=None)
    body["agent"]["workflow"].update(package_name=None, properties=None)
    request = CompletionRequest.model_validate(body)
    assert (request.session_id, request.message_history, request.agent.tools) == ("", [], [])
    assert request.agent.show_content_artifacts


def test_lists_of_two_requests_are_their_own() -> None:
    """Absent lists are fresh empty lists, not shared ones."""
    one, two = (CompletionRequest.model_validate({"user_prompt": "x", "agent": {"name": "a"}}) for _ in range(2))
    assert one.message_history == []
    assert one.message_history is not two.message_history


def test_a_rewriting_takes_the_place_of_the_prompt(body: dict[str, Any]) -> None:
    request = CompletionRequest.model_validate({**body, "user_prompt_rewrite": "Better."})
    assert (request.prompt, request.user_prompt) == ("Better.", body["user_prompt"])


def test_an_attachment_is_matched_by_its_path(body: dict[str, Any]) -> None:
    body["file_history"][0]["current_message_attachment"] = False
    (attached,) = CompletionRequest.model_validate(body).attached_files
    assert attached.original_file_name == "sales.csv"


@pytest.mark.parametrize(
    ("object_id", "file_id"),
    [
        ("/instances/i/providers/FoundationaLLM.Context/files/file-1", "file-1"),
        ("/instances/i/providers/FoundationaLLM.Attachment/attachments/a", ""),
        ("/instances/i/providers/FoundationaLLM.Context/files/../../x", ""),
        ("", ""),
    ],
    ids=["context", "legacy", "hostile", "absent"],
)
def test_the_file_id_is_the_last_segment(object_id: str, file_id: str, body: dict[str, Any]) -> None:
    body["file_history"][0]["object_id"] = object_id
    assert CompletionRequest.model_validate(body).file_history[0].file_id == file_id


@pytest.mark.parametrize(
    ("spelling", "ours"),
    [
        ("external-agent-workflow", True),
        ("generic-agent-workflow", True),
        ("claude-code-agent-workflow", True),
        ("langgraph-react-agent-workflow", False),
        ("ExternalAgentWorkflow", False),
        ("", False),
    ],
)
def test_three_spellings_of_the_workflow_type_are_ours(spelling: str, ours: bool) -> None:
    """Any other is readable too, so that the planner can say what is wrong with it."""
    assert Workflow.model_validate({"type": spelling}).is_ours is ours


@pytest.mark.parametrize("name", ["generic-workflow", "requires-dotnet-patch"])
def test_agent_resources_are_read(name: str) -> None:
    """The agent resources we deploy, with created_on of year 1 and nulls, are agents we can serve."""
    agent = sample(f"resources/agent.claude-code.{name}.json")
    request = CompletionRequest.model_validate({"user_prompt": "x", "agent": agent})
    assert request.agent.workflow is not None
    assert request.agent.workflow.is_ours
    assert [key for key, _ in request.agent.workflow.references("main_prompt")] == [
        "/instances/{{instanceId}}/providers/FoundationaLLM.Prompt/prompts/claude-code-system"
    ]


def test_deployed_resources_resolve_together() -> None:
    """Agent, model, endpoint and prompt as we deploy them fit each other."""
    agent = sample("resources/agent.claude-code.generic-workflow.json")
    resources = [
        sample(f"resources/{name}.json")
        for name in ("aimodel.ClaudeSonnetCompletionAIModel", "apiEndpoint.Anthropic", "prompt.claude-code-system")
    ]
    objects = {resource["object_id"]: resource for resource in resources}
    request = CompletionRequest.model_validate({"user_prompt": "x", "agent": agent, "objects": objects})
    model, endpoint, overrides = resolve_main_model(request)
    assert (model.name, endpoint.url, overrides) == (
        "ClaudeSonnetCompletionAIModel",
        "https://api.anthropic.com",
        {"max_new_tokens": 8192},
    )
    assert resolve_prompt(request).prefix.startswith("You are a coding agent")


@pytest.mark.parametrize("name", ["ClaudeCode.standard-template", "ClaudeCode.quick-start-template", "Anthropic"], ids=str)
def test_endpoint_resources_are_read(name: str) -> None:
    endpoint = EndpointConfiguration.model_validate(sample(f"resources/apiEndpoint.{name}.json"))
    assert endpoint.authentication_type == "APIKey"
    assert endpoint.api_key_configuration_name.startswith("FoundationaLLM:APIEndpoints:")


def test_single_resources_are_read() -> None:
    assert AIModel.model_validate(sample("resources/aimodel.ClaudeSonnetCompletionAIModel.json")).model_parameters
    assert Prompt.model_validate(sample("resources/prompt.claude-code-system.json")).suffix == ""
    endpoint = EndpointConfiguration.model_validate(sample("orchestration/api_endpoint_configuration.json"))
    assert endpoint.category == "ExternalOrchestration"


def test_a_user_may_have_an_address_of_their_own() -> None:
    exception = {"user_principal_name": "Ann@contoso.com", "url": "http://localhost:1", "enabled": True}
    off = {**exception, "user_principal_name": "bob@contoso.com", "enabled": False}
    endpoint = EndpointConfiguration.model_validate({"url": "http://all", "url_exceptions": [off, exception]})
    addresses = [endpoint.url_for(upn) for upn in ("ann@CONTOSO.com", "bob@contoso.com", "eve@contoso.com")]
    assert addresses == ["http://localhost:1", "http://all", "http://all"]


def without_role(body: dict[str, Any]) -> None:
    for reference in body["agent"]["workflow"]["resource_object_ids"].values():
        reference["properties"].pop("object_role", None)


def without_workflow(body: dict[str, Any]) -> None:
    del body["agent"]["workflow"]


def without_model(body: dict[str, Any]) -> None:
    del body["objects"][key_of(body, MODELS)]


def without_endpoint(body: dict[str, Any]) -> None:
    del body["objects"][key_of(body, "AnthropicAPI")]


def without_deployment(body: dict[str, Any]) -> None:
    del body["objects"][key_of(body, MODELS)]["deployment_name"]


def without_endpoint_id(body: dict[str, Any]) -> None:
    body["objects"][key_of(body, MODELS)]["endpoint_object_id"] = None


def with_text_for_a_model(body: dict[str, Any]) -> None:
    body["objects"][key_of(body, MODELS)] = "ClaudeSonnet"


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (without_role, RoleMissing, "'object_role' set to 'main_model'"),
        (without_workflow, RoleMissing, "'RepoHelper' names no 'main_model'"),
        (without_model, ResourceMissing, "inheritable_authorizable_actions"),
        (without_endpoint, ResourceMissing, "wanted by the model 'ClaudeSonnet'"),
        (without_deployment, ResourceInvalid, "'deployment_name'"),
        (without_endpoint_id, ResourceInvalid, "'endpoint_object_id'"),
        (with_text_for_a_model, ResourceInvalid, "cannot be read"),
    ],
    ids=lambda value: value.__name__.replace("_", "-") if callable(value) else None,
)
def test_a_model_that_does_not_resolve_says_what_to_add(body: dict[str, Any], spoil: Any, kind: type[ResourceProblem], words: str) -> None:
    spoil(body)
    with pytest.raises(kind, match=words):
        resolve_main_model(CompletionRequest.model_validate(body))


def test_a_missing_prompt_says_what_to_add(body: dict[str, Any]) -> None:
    with pytest.raises(RoleMissing, match="router_prompt") as raised:
        resolve_prompt(CompletionRequest.model_validate(body), "router_prompt")
    assert raised.value.role == "router_prompt"


@pytest.mark.parametrize("missing", ["user_prompt", "agent"])
def test_two_fields_cannot_be_missing(body: dict[str, Any], missing: str) -> None:
    del body[missing]
    with pytest.raises(ValidationError, match=missing):
        CompletionRequest.model_validate(body)
