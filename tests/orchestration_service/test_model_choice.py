"""Which models an agent has: roles at the workflow and at our tool, names in properties, parameters honoured or refused."""

from typing import Any

import pytest

from orchestration_service.brokers.route import ModelParameters
from orchestration_service.model_choice import ModelChoices
from orchestration_service.model_parameters import read_parameters
from tests.orchestration_service.turns import INSTANCE, MODEL, plan, sample
from workflow_schemas.platform import CompletionRequest


def add_model(body: dict[str, Any], name: str, role: str, *, at: str = "workflow", sent: bool = True, **parameters: Any) -> None:
    """Give the agent of a request one more model, served by an endpoint of the same name."""
    object_id = f"{INSTANCE}/FoundationaLLM.AIModel/aiModels/{name}"
    endpoint_id = f"{INSTANCE}/FoundationaLLM.Configuration/apiEndpointConfigurations/{name}"
    reference = {"object_id": object_id, "properties": {"object_role": role, "model_parameters": parameters}}
    if at == "workflow":
        body["agent"]["workflow"]["resource_object_ids"][object_id] = reference
    else:
        body["agent"]["tools"].append({"name": at, "resource_object_ids": {object_id: reference}})
    if sent:
        body["objects"][object_id] = {"name": name, "object_id": object_id, "deployment_name": name, "endpoint_object_id": endpoint_id}
        first = next(value for key, value in body["objects"].items() if "apiEndpointConfigurations" in key)
        body["objects"][endpoint_id] = {**first, "name": name, "object_id": endpoint_id}


def chosen(body: dict[str, Any], **properties: Any) -> ModelChoices:
    if properties:
        body["agent"]["workflow"]["properties"] = properties
    return plan(CompletionRequest.model_validate(body)).models


def test_roles_are_read_from_the_workflow_and_from_our_tool_in_their_order() -> None:
    body = sample()
    add_model(body, "claude-third", "fallback_model_3")
    add_model(body, "claude-tiny", "small_model", at="ClaudeCodeSandbox")
    add_model(body, "claude-second", "fallback_model", at="ClaudeCodeSandbox", temperature=0.5)
    add_model(body, "claude-foreign", "fallback_model", at="CodeInterpreter")
    models = chosen(body)
    assert (models.main.model, models.small and models.small.model) == ("claude-sonnet-4-5", "claude-tiny")
    assert [(model.role, model.model, model.endpoint.name) for model in models.fallbacks] == [
        ("fallback_model", "claude-second", "claude-second"),
        ("fallback_model_2", "claude-third", "claude-third"),
    ]
    assert models.fallbacks[0].parameters == ModelParameters(temperature=0.5)
    assert models.remarks == ()


def test_names_in_properties_are_models_of_the_main_ones_endpoint() -> None:
    body = sample()
    add_model(body, "claude-other", "fallback_model")
    models = chosen(body, claude_code={"small_model": "claude-tiny", "fallback_models": "claude-sonnet-4, claude-haiku-4-5"})
    assert models.small is not None
    assert (models.small.model, models.small.endpoint.name) == ("claude-tiny", "AnthropicAPI")
    assert [model.model for model in models.fallbacks] == ["claude-other", "claude-sonnet-4", "claude-haiku-4-5"]
    assert [model.role for model in models.fallbacks] == ["fallback_model", "fallback_model_2", "fallback_model_3"]


def test_the_runner_is_told_the_small_models_name() -> None:
    planned = plan(CompletionRequest.model_validate(sample()))
    assert planned.plan.small_model == ""
    body = sample()
    body["agent"]["workflow"]["properties"] = {"small_model": "claude-tiny"}
    assert plan(CompletionRequest.model_validate(body)).plan.small_model == "claude-tiny"


@pytest.mark.parametrize(
    ("name", "role", "sent", "words"),
    [
        ("claude-away", "fallback_model", False, ["'fallback_model' is not used", "tool whose name begins with 'ClaudeCode'"]),
        ("claude-odd", "fallback_model_b", True, ["'fallback_model_b' is not known", "'fallback_model_2'"]),
        ("claude-odd", "small_models", True, ["'small_models' is not known", "'small_model'"]),
    ],
    ids=["not sent", "misspelt fallback", "misspelt small"],
)
def test_a_further_model_that_cannot_be_used_is_told_and_the_turn_runs(name: str, role: str, sent: bool, words: list[str]) -> None:
    body = sample()
    add_model(body, name, role, sent=sent)
    planned = plan(CompletionRequest.model_validate(body))
    assert (planned.models.small, planned.models.fallbacks) == (None, ())
    [remark] = planned.remarks
    assert [word for word in words if word not in remark] == []


def test_a_fallback_that_is_no_other_model_is_left_out() -> None:
    models = chosen(sample(), fallback_models=["claude-sonnet-4-5", "claude-haiku-4-5", "claude-haiku-4-5"])
    assert [model.model for model in models.fallbacks] == ["claude-haiku-4-5"]
    assert len(models.remarks) == 2


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"temperature": 0}, {"temperature": 0}),
        ({"temperature": "0.5", "top_p": "", "top_k": None}, {"temperature": 0.5}),
        ({"top_p": 0.9, "top_k": 40, "max_new_tokens": 8192}, {"top_p": 0.9, "top_k": 40, "max_tokens": 8192}),
        ({"max_tokens": "4096"}, {"max_tokens": 4096}),
    ],
    ids=["number", "text", "all", "our own name"],
)
def test_parameters_with_a_meaning_are_passed(given: dict[str, Any], read: dict[str, Any]) -> None:
    reading = read_parameters(given, "claude")
    assert (reading.parameters, reading.remarks) == (ModelParameters(**read), ())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("do_sample", False, "'temperature' to 0"),
        ("return_full_text", True, "never repeat"),
        ("ignore_eos", True, "'max_new_tokens'"),
        ("frequency_penalty", 1, "not known; there are max_new_tokens, temperature, top_k, top_p"),
        ("temperature", 2, "is 2 and was left out: it must be a number from 0 to 1"),
        ("temperature", True, "is True and was left out"),
        ("temperature", "hot", "is 'hot' and was left out"),
        ("top_p", 0, "above 0"),
        ("top_k", 1.5, "a whole number"),
        ("max_new_tokens", [], "a whole number"),
    ],
)
def test_every_other_parameter_is_refused_by_name(name: str, value: Any, words: str) -> None:
    reading = read_parameters({name: value}, "claude")
    [remark] = reading.remarks
    assert reading.parameters == ModelParameters()
    assert repr(name) in remark
    assert words in remark


def test_overrides_of_the_agent_win_and_their_remarks_reach_the_receipt() -> None:
    body = sample()
    body["objects"][MODEL]["model_parameters"] = {"temperature": 0, "do_sample": True}
    body["agent"]["workflow"]["resource_object_ids"][MODEL]["properties"]["model_parameters"] = {"temperature": 0.7, "max_new_tokens": 100}
    planned = plan(CompletionRequest.model_validate(body))
    assert planned.models.main.parameters == ModelParameters(temperature=0.7, max_tokens=100)
    assert ["'do_sample'" in remark for remark in planned.remarks] == [True]
