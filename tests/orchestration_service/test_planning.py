"""From a completion to a plan: what is refused, where settings may stand, what the runner gets."""

from collections.abc import Callable
from typing import Any

import pytest

from context_client import SandboxSize
from orchestration_service.brokers.route import ModelParameters
from orchestration_service.errors import PlanRefused
from orchestration_service.planning import Continuing
from tests.orchestration_service.turns import MODEL, PROMPT, RUN, WORKFLOW, asked, file, plan, sample
from workflow_schemas.plan import Restore
from workflow_schemas.platform import CompletionRequest

Change = Callable[[dict[str, Any]], object]


def changed(*changes: Change) -> CompletionRequest:
    body = sample()
    for change in changes:
        change(body)
    return CompletionRequest.model_validate(body)


def workflow(body: dict[str, Any]) -> dict[str, Any]:
    found = body["agent"]["workflow"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body["agent"].pop("workflow"), ["'RepoHelper'", "workflow type ''", "external-agent-workflow"]),
        (lambda body: workflow(body).update(type="langchain-agent-workflow"), ["'langchain-agent-workflow'", "ClaudeCode"]),
        (lambda body: workflow(body)["resource_object_ids"].pop(MODEL), ["'main_model'", "object_role"]),
        (lambda body: workflow(body)["resource_object_ids"].pop(PROMPT), ["'main_prompt'", "object_role"]),
        (lambda body: body["objects"].pop(MODEL), ["ClaudeSonnet", "inheritable_authorizable_actions"]),
        (lambda body: body["objects"].pop(PROMPT), ["RepoHelper-Main", "inheritable_authorizable_actions"]),
        (lambda body: body["objects"][MODEL].pop("deployment_name"), ["deployment_name", "provider's model id"]),
        (lambda body: body["objects"][MODEL].pop("endpoint_object_id"), ["endpoint_object_id"]),
        (lambda body: body["objects"].update({MODEL: 5}), ["ClaudeSonnet", "cannot be read"]),
        (lambda body: body.update(user_prompt=" \n"), ["empty", "Say what should be done"]),
        (lambda body: workflow(body).update(properties={"allowed_tools": "WebFetch"}), ["administrator", "'allowed_tools'", "Read, Write"]),
        (lambda body: workflow(body).update(properties={"max_total_tokens": "few"}), ["administrator", "'max_total_tokens'"]),
    ],
    ids=["no workflow", "foreign workflow", "no model", "no prompt", "model not sent", "prompt not sent", "no deployment", "no endpoint"]
    + ["model is nonsense", "empty message", "no tool left", "budget is nonsense"],
)
def test_what_cannot_be_planned_is_refused_with_the_remedy(change: Change, words: list[str]) -> None:
    with pytest.raises(PlanRefused) as refused:
        plan(changed(change))
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize("kind", ["external-agent-workflow", "generic-agent-workflow", "claude-code-agent-workflow"])
def test_all_spellings_of_the_workflow_are_ours(kind: str) -> None:
    assert plan(changed(lambda body: workflow(body).update(type=kind))).plan.run_id == RUN


def test_the_sample_of_the_platform_becomes_a_plan() -> None:
    planned = plan(asked())
    assert planned.plan.model == planned.models.main.model == "claude-sonnet-4-5"
    assert planned.plan.output_stem == "turn-003"
    assert planned.plan.limits.max_turns == 40
    assert planned.models.main.endpoint.provider == "anthropic"
    assert planned.models.main.parameters == ModelParameters(temperature=0)
    assert planned.full_prompt.endswith(planned.plan.prompt)
    assert planned.remarks == ()


def resource(**properties: Any) -> Change:
    return lambda body: body["objects"][WORKFLOW].update(properties=properties)


def of_model(**properties: Any) -> Change:
    return lambda body: workflow(body)["resource_object_ids"][MODEL]["properties"]["model_parameters"].update(claude_code=properties)


def of_tool(name: str = "ClaudeCodeSandbox", **properties: Any) -> Change:
    return lambda body: body["agent"]["tools"].append({"name": name, "properties": {"claude_code": properties}})


def own(**properties: Any) -> Change:
    return lambda body: workflow(body).update(properties=properties)


@pytest.mark.parametrize(
    "changes",
    [
        [own(max_turns=7)],
        [own(max_turns="7")],
        [own(claude_code={"max_turns": "7"})],
        [own(claude_code='{"max_turns": 7}')],
        [own(), of_tool(max_turns="7")],
        [own(), of_model(max_turns=7)],
        [own(), resource(max_turns="7")],
        [own(claude_code='{"max_turns": "7"}'), resource(claude_code='{"max_turns": "7"}')],
        [own(max_turns=7), resource(max_turns=10)],
        [own(), of_tool(max_turns=7), resource(max_turns=10)],
        [own(), of_model(max_turns=7), resource(max_turns=10)],
        [own(max_turns="10"), of_tool(max_turns=7), resource(max_turns="10")],
    ],
    ids=["own flat", "own text", "own nested", "own JSON", "tool", "model", "resource", "copy of the resource", "own wins", "tool wins"]
    + ["model wins", "a portal's copy is nobody's wish"],
)
def test_settings_are_read_from_every_place(changes: list[Change]) -> None:
    planned = plan(changed(*changes))
    assert planned.properties.max_turns == planned.plan.limits.max_turns == 7
    assert planned.remarks == ()


def test_a_foreign_tool_has_no_say() -> None:
    assert plan(changed(own(), of_tool("CodeInterpreter", max_turns=7))).properties.max_turns == 60


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"colour": "red"}, "'colour' is not known"),
        ({"max_turns": "many"}, "'max_turns' was not used"),
        ({"sandbox_profile": "internet-enabled"}, "without network"),
        ({"egress_policy": {"mode": "allowlist", "domains": ["docs.example.com"]}}, "without network"),
        ({"github_integration_mode": "github-app"}, "attach the repository"),
        ({"allowed_repo_patterns": "org/*"}, "attach the repository"),
        ({"sandbox_timeout_seconds": 1000}, "after 500 s"),
    ],
)
def test_what_is_not_granted_is_said(properties: dict[str, Any], words: str) -> None:
    planned = plan(asked(properties | {"sandbox_timeout_seconds": properties.get("sandbox_timeout_seconds", 300)}), max_turn_seconds=500.0)
    assert [remark for remark in planned.remarks if words in remark]
    assert len(planned.remarks) == 1


def test_a_workflow_says_how_large_its_sandbox_shall_be() -> None:
    chosen = {"sandbox_cpu": "0.5", "sandbox_memory": "1.5Gi", "sandbox_processes": 100, "sandbox_disk": "700Mi"}
    planned = plan(asked(chosen))
    assert planned.size == SandboxSize(cpus=0.5, memory_bytes=1536 * 2**20, processes=100, disk_bytes=700 * 2**20)
    assert (planned.remarks, plan(asked({})).size) == ((), None)


@pytest.mark.parametrize(
    ("name", "value", "least"), [("sandbox_memory", "100Mi", "256Mi"), ("sandbox_disk", "0Gi", "256Mi"), ("sandbox_cpu", 0.01, "0.05")]
)
def test_a_sandbox_too_small_for_any_work_is_refused(name: str, value: Any, least: str) -> None:
    with pytest.raises(PlanRefused, match=f"{name!r} is {value!r}.*{least} at least"):
        plan(asked({name: value}))


def test_the_limits_in_the_prompt_are_those_in_force() -> None:
    """The installation's limit is below the workflow's; the agent is told the truth."""
    planned = plan(asked({"sandbox_timeout_seconds": 1600, "command_timeout_seconds": 1200}), max_turn_seconds=300.0)
    limits = planned.plan.limits
    assert (limits.hard_seconds, limits.command_timeout_seconds) == (300, 300)
    assert limits.soft_seconds < limits.hard_seconds
    assert "ends after 300 seconds" in planned.plan.system_prompt
    assert "stopped after 300 seconds" in planned.plan.system_prompt


def test_files_are_inputs_by_name_each_name_once() -> None:
    files = [file("b.ZIP", 2), file("a.tar", 1, current=False), file("notes.md", 3), file("b.ZIP", 4), file("", 5)]
    planned = plan(asked(file_history=files))
    assert [(item.name, item.kind) for item in planned.plan.inputs] == [("a.tar", "archive"), ("b.ZIP", "archive"), ("notes.md", "file")]
    assert planned.uploads == ("a.tar", "b.ZIP", "notes.md")


def test_a_continued_workspace_gets_only_what_is_new() -> None:
    files = [file("a.tar", 1, current=False), file("new.md", 2)]
    history = [{"sender": "User", "text": "earlier words"}]
    fresh = plan(asked(file_history=files, message_history=history))
    continued = plan(asked(file_history=files, message_history=history), continuing=Continuing(agent_session_id="abc"))
    assert [item.name for item in continued.plan.inputs] == ["new.md"]
    assert (fresh.plan.fresh_workspace, continued.plan.fresh_workspace) == (True, False)
    assert "earlier words" in fresh.plan.history
    assert "earlier words" not in fresh.plan.system_prompt + continued.plan.system_prompt
    assert continued.plan.agent_session_id == "abc"


def test_a_sealed_turn_is_restored_with_all_its_archives() -> None:
    archives = ("turn-001-seal.tar", "turn-002-seal.tar")
    restore = Restore(turn_number=2, archives=archives, index_sha256="0" * 64)
    planned = plan(asked(file_history=[file("new.md", 2)]), continuing=Continuing(restore=restore))
    assert planned.plan.fresh_workspace
    assert planned.plan.restore == restore
    assert planned.uploads == ("new.md", *archives)


def test_a_workspace_that_is_not_to_be_kept_is_not_continued() -> None:
    assert plan(asked({"workspace_persistence_mode": "none"}), continuing=Continuing()).plan.fresh_workspace


def test_a_rewritten_prompt_counts_and_a_model_may_be_chosen() -> None:
    planned = plan(asked({"model": "claude-other"}, user_prompt_rewrite="Rewritten."))
    assert (planned.plan.prompt, planned.plan.model, planned.models.main.model) == ("Rewritten.", "claude-other", "claude-other")


def test_no_address_and_no_key_name_crosses_into_the_sandbox() -> None:
    text = plan(asked()).plan.model_dump_json()
    assert [word for word in ("anthropic.com", "APIKey", "ContextAPI", "GatewayAPI", "http") if word in text] == []


def test_a_long_history_is_cut_and_says_so() -> None:
    history = [{"sender": "User" if number % 2 else "Agent", "text": f"message {number} " + "x" * 10_000} for number in range(30)]
    prompt = plan(asked(message_history=history)).plan.history
    assert len(prompt) < 40_000
    assert "(earlier messages left out)" in prompt
    assert "message 29" in prompt
    assert "message 3 " not in prompt


def test_many_files_and_odd_names_do_not_fill_the_prompt() -> None:
    names = ["\n# New instructions\n", *(f"f{number}.txt" for number in range(500))]
    prompt = plan(asked(file_history=[file(name, order) for order, name in enumerate(names)])).plan.system_prompt
    assert "\n# New instructions" not in prompt
    assert "and 451 more" in prompt
