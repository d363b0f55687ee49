"""Where settings may stand in the platform's own shapes, and what is left of them after the Management Portal has saved an agent."""

import json
from typing import Any

import pytest

from orchestration_service.agent_settings import settings_of
from orchestration_service.planning import Planned, SandboxLimits, make_plan
from tests.orchestration_service.turns import SAMPLES
from workflow_schemas.platform import CompletionRequest

RESOURCES = SAMPLES.parent / "resources"
Json = dict[str, Any]


def resource(name: str, **changes: Any) -> Json:
    text = (RESOURCES / f"{name}.json").read_text(encoding="utf-8").replace("{{instanceId}}", "7c1b6f0e")
    found = json.loads(text)
    assert isinstance(found, dict)
    return found | changes


WORKFLOW = resource("workflow.ClaudeCodeAgentWorkflow.generic-type", properties={"max_turns": "40"})
MODEL = resource("aimodel.ClaudeSonnetCompletionAIModel")
PROMPT = resource("prompt.claude-code-system")
ENDPOINT = resource("apiEndpoint.Anthropic")


def agent(*, own: Json | None = None, model: Any = None, tool: Json | None = None) -> Json:
    """The agent of the samples with settings in some of its places."""
    found = resource("agent.claude-code.generic-workflow")
    found["workflow"]["properties"] = own if own is not None else WORKFLOW["properties"]
    if model is not None:
        found["workflow"]["resource_object_ids"][MODEL["object_id"]]["properties"]["model_parameters"]["claude_code"] = model
    found["tools"][0]["properties"] |= tool or {}
    return found


def saved(before: Json, chosen: Json) -> Json:
    """What the Management Portal writes: all of the chosen workflow resource first, then the few fields its form has."""
    form = ("workflow_host", "name", "package_name", "class_name", "resource_object_ids")
    workflow = {**chosen, "assistant_id": None, "vector_store_id": None, **{name: before["workflow"][name] for name in form}}
    return before | {"workflow": workflow, "properties": {"welcome_message": before["properties"]["welcome_message"]}}


def planned(of: Json, workflow: Json = WORKFLOW) -> Planned:
    sent = {item["object_id"]: item for item in (workflow, MODEL, PROMPT, ENDPOINT)}
    request = CompletionRequest.model_validate({"user_prompt": "Fix it.", "agent": of, "objects": sent})
    return make_plan(request, run_id="run-00000001", turn_number=1, limits=SandboxLimits())


OVERRIDES: dict[str, Json] = {
    "model, object": {"model": {"max_turns": 7}},
    "model, typed as text": {"model": '{"max_turns": "7"}'},
    "tool, nested": {"tool": {"claude_code": {"max_turns": 7}}},
    "tool, nested as text": {"tool": {"claude_code": '{"max_turns": 7}'}},
    "tool, flat": {"tool": {"max_turns": "7"}},
}

CHOSEN: dict[str, Json] = {
    "the agent's own resource": WORKFLOW,
    "another one of the same type": WORKFLOW | {"name": "GenericAgentWorkflow", "properties": {"max_turns": "90"}},
    "one without properties": WORKFLOW | {"properties": None},
    "one that never heard of us": WORKFLOW | {"properties": {"graph_recursion_limit": "10"}},
}


@pytest.mark.parametrize("place", OVERRIDES)
@pytest.mark.parametrize("chosen", CHOSEN)
def test_an_override_survives_a_save_in_the_portal(place: str, chosen: str) -> None:
    before = agent(**OVERRIDES[place])
    assert planned(before).plan.limits.max_turns == 7
    assert planned(before).remarks == ()
    assert planned(saved(before, CHOSEN[chosen])).plan.limits.max_turns == 7


def test_what_stood_in_the_agents_workflow_alone_is_lost_by_a_save() -> None:
    """The portal's doing; the workflow resource's value holds then, not a default."""
    before = agent(own={"max_turns": 7})
    assert planned(before).plan.limits.max_turns == 7
    assert planned(saved(before, WORKFLOW)).plan.limits.max_turns == 40


def test_a_resource_that_was_changed_since_the_save_does_not_hide_an_override() -> None:
    """The agent still carries the resource's values of then; nobody wished for those."""
    stale = saved(agent(tool={"max_turns": 7}), WORKFLOW)
    turn = planned(stale, WORKFLOW | {"properties": {"max_turns": "50"}})
    assert turn.plan.limits.max_turns == 7
    assert turn.remarks == (
        "The workflow property 'max_turns' is set by the agent's workflow and differently by its tool 'ClaudeCodeSandbox', "
        "which has the say.",
    )


def test_two_overrides_that_disagree_are_named() -> None:
    turn = planned(agent(model={"max_turns": 9, "model": "m"}, tool={"max_turns": 7, "model": "m"}))
    assert turn.plan.limits.max_turns == 7
    assert len(turn.remarks) == 1
    assert "the parameters of its main model and differently by its tool" in turn.remarks[0]


def test_the_same_value_in_two_spellings_is_no_disagreement() -> None:
    assert planned(agent(model={"max_turns": 7}, tool={"claude_code": {"max_turns": "7"}})).remarks == ()


def test_a_tools_own_properties_are_not_ours_and_slips_of_the_pen_are_named() -> None:
    """The tool keeps what the platform needs for its code session."""
    turn = planned(agent(tool={"maxTurns": 7, "vector_store_metadata_filter": "{}"}))
    assert turn.plan.limits.max_turns == 40
    assert turn.remarks == ("The workflow property 'maxTurns' is not known and has no effect. Did you mean 'max_turns'?",)


def test_values_come_from_every_place_at_once() -> None:
    request = CompletionRequest.model_validate(
        {"user_prompt": "x", "agent": agent(own={"model": "a"}, tool={"sandbox_cpu": 2}), "objects": {WORKFLOW["object_id"]: WORKFLOW}}
    )
    found = settings_of(request, {"claude_code": {"max_total_tokens": 5000}})
    assert found.values == {"max_turns": "40", "model": "a", "max_total_tokens": 5000, "sandbox_cpu": 2}
    assert found.remarks == ()
