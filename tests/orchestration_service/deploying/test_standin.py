"""The stand-in of the Management API has the platform's habits: those the contract tells, on the contract's own samples."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.orchestration_service.deploying.standins.stores import MANAGEMENT_TOKEN
from tests.orchestration_service.deploying.standins.world import INSTANCE, World

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulator

SAMPLES = Path(__file__).parents[2] / "contracts" / "samples" / "resources"
AGENT, PROMPT, MODEL, CONFIGURATION = (f"FoundationaLLM.{name}" for name in ("Agent", "Prompt", "AIModel", "Configuration"))
GUID = "3f1d7f0e-8f3c-4a55-9d0a-6f2f0d5b2a11"
ROLE = f"FoundationaLLM.Authorization/roleAssignments/{GUID}"


def sample(name: str, /, **changed: Any) -> dict[str, Any]:
    text = (SAMPLES / f"{name}.json").read_text(encoding="utf-8").replace("{{instanceId}}", INSTANCE)
    for blank in ("claudeCodeUsersGroupObjectId", "claudeCodeVirtualSecurityGroupId"):
        text = text.replace(f"{{{{{blank}}}}}", GUID)
    return {**json.loads(text), **changed}


async def ask(world: World, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {MANAGEMENT_TOKEN}"}
    async with httpx.AsyncClient(base_url=world.api.url, headers=headers, trust_env=False) as client:
        return await client.request(method, f"/instances/{INSTANCE}/providers/{path}", json=body)


ACCEPTED = (
    (f"{CONFIGURATION}/apiEndpointConfigurations/ClaudeCode", sample("apiEndpoint.ClaudeCode.standard-template")),
    (f"{CONFIGURATION}/apiEndpointConfigurations/Anthropic", sample("apiEndpoint.Anthropic")),
    (f"{MODEL}/aiModels/ClaudeSonnetCompletionAIModel", sample("aimodel.ClaudeSonnetCompletionAIModel")),
    (f"{PROMPT}/prompts/claude-code-system", sample("prompt.claude-code-system")),
    (f"{AGENT}/agents/claude-code", sample("agent.claude-code.generic-workflow")),
    (ROLE, sample("roleAssignment.management-api-body")),
    (f"{AGENT}/management/trigger-command", sample("management.cache-reset-command")),
)


async def test_it_takes_what_the_contract_shows_and_wraps_what_it_gives(world: World) -> None:
    for path, body in ACCEPTED:
        answer = await ask(world, "POST", path, body)
        assert (path, answer.status_code, answer.text) == (path, 200, answer.text)
    [found] = (await ask(world, "GET", f"{AGENT}/agents/claude-code")).json()
    assert sorted(found) == ["Properties", "actions", "resource", "roles"]
    assert found["resource"]["workflow"]["workflow_host"] == "ClaudeCode"
    scope = sample("roleAssignment.management-api-body")["scope"]
    asked = await ask(world, "POST", "FoundationaLLM.Authorization/roleAssignments/filter", {"scope": scope})
    assert GUID in [one["resource"]["name"] for one in asked.json()]
    assert any(one["resource"]["description"].startswith("Owner role for") for one in asked.json()), "whoever makes an agent owns it"


TYPE_LAST = dict(sorted(sample("agent.claude-code.generic-workflow").items(), key=lambda item: item[0] == "type"))


REFUSED: Sequence[tuple[str, str, Any, int]] = (
    ("PUT", f"{AGENT}/agents/claude-code", {}, 405),
    ("POST", f"{AGENT}/workflows/ClaudeCodeAgentWorkflow", sample("workflow.ClaudeCodeAgentWorkflow.generic-type"), 400),
    ("DELETE", f"{AGENT}/workflows/GenericAgentWorkflow", None, 400),
    ("POST", f"{AGENT}/agents/claude-code", TYPE_LAST, 400),
    ("POST", f"{AGENT}/agents/claude-code", sample("agent.claude-code.requires-dotnet-patch"), 400),
    ("POST", f"{AGENT}/agents/claude-code", sample("agent.claude-code.generic-workflow", type="knowledge-management"), 400),
    ("POST", f"{AGENT}/agents/another", sample("agent.claude-code.generic-workflow"), 400),
    ("POST", f"{PROMPT}/prompts/1st", sample("prompt.claude-code-system", name="1st"), 400),
    ("POST", f"{AGENT}/agents/GenericAgentWorkflow", sample("agent.claude-code.generic-workflow", name="GenericAgentWorkflow"), 400),
    ("POST", f"{CONFIGURATION}/apiEndpointConfigurations/LangChainAPI/purge", {}, 400),
    ("POST", "FoundationaLLM.Authorization/roleAssignments/reader", sample("roleAssignment.management-api-body", name="reader"), 400),
    ("GET", ROLE, None, 400),
    ("GET", f"{AGENT}/agents/nobody", None, 404),
    ("POST", f"{MODEL}/management/trigger-command", sample("management.cache-reset-command"), 500),
)


async def test_it_refuses_what_the_platform_refuses(world: World) -> None:
    for method, path, body, status in REFUSED:
        answer = await ask(world, method, path, body)
        assert (method, path, answer.status_code) == (method, path, status)


async def test_a_role_exists_once_whatever_it_is_called(world: World) -> None:
    role = sample("roleAssignment.management-api-body")
    assert (await ask(world, "POST", ROLE, role)).status_code == 200
    other = GUID.replace("3f", "4f")
    assert (await ask(world, "POST", f"{ROLE.rpartition('/')[0]}/{other}", {**role, "name": other})).status_code == 409


async def test_a_deleted_name_is_taken_until_it_is_purged(world: World) -> None:
    path, body = f"{PROMPT}/prompts/claude-code-system", sample("prompt.claude-code-system")
    answers = [await ask(world, *request) for request in (("POST", path, body), ("DELETE", path), ("GET", path), ("POST", path, body))]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 400]
    assert [(await ask(world, "POST", end, more)).status_code for end, more in ((f"{path}/purge", {}), (path, body))] == [200, 200]


async def test_what_is_seeded_shows_after_a_reset_which_needs_a_role(world: World) -> None:
    [line] = [
        one
        for one in sample("resource-references.additions")[f"{AGENT}/_resource-references.json"]["ResourceReferences"]
        if one["Type"] == "workflow"
    ]
    await world.api._write(line["Filename"].lstrip("/"), sample("workflow.ClaudeCodeAgentWorkflow.generic-type"))
    await world.edit(f"{AGENT}/_resource-references.json", lambda content: content["ResourceReferences"].append(line))
    reset = (f"{AGENT}/management/trigger-command", sample("management.cache-reset-command"))

    async def shown() -> list[str]:
        return [one["resource"]["name"] for one in (await ask(world, "GET", f"{AGENT}/workflows")).json()]

    world.api.may_reset = False
    assert (await ask(world, "POST", *reset)).status_code == 403
    assert await shown() == ["GenericAgentWorkflow"]
    world.api.may_reset = True
    assert (await ask(world, "POST", *reset)).status_code == 200
    assert await shown() == ["GenericAgentWorkflow", "ClaudeCodeAgentWorkflow"]
    await world.edit(
        f"{AGENT}/_resource-references.json",
        lambda content: content["ResourceReferences"].append({**line, "Name": "x", "Type": "Workflow"}),
    )
    await world.api.reset(AGENT)
    assert (await ask(world, "GET", f"{AGENT}/agents")).status_code == 500, "one unknown kind breaks every listing"
