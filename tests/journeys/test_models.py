"""Several models in one turn: a fallback takes the main one's place, and the user is told, with usage and cost of each."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestration_service.scripted.script import HttpAnswer, Step
from tests.stage import MODEL_KEY, Casting, Stage, bash, open_stage, says

pytestmark = pytest.mark.anyio

PRICES: dict[str, Any] = {
    "currency": "EUR",
    "source": "our contract",
    "as_of": "2026-11-01",
    "models": [
        {"names": ["scripted-model"], "input": "1", "output": "1", "cache_write": "1", "cache_read": "1"},
        {"names": ["claude-second"], "input": "10", "output": "100", "cache_write": "0", "cache_read": "0"},
    ],
}
USED: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 100}


@pytest.fixture
async def stage(tmp_path: Any) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path, price_table=json.dumps(PRICES)) as opened:
        yield opened


def add_fallback(body: dict[str, Any], casting: Casting, name: str) -> None:
    """Give the agent a tool that refers to one more model, so that the platform sends it along."""
    objects = body["objects"]
    model_id, model = next((key, value) for key, value in objects.items() if "aiModels" in key)
    endpoint_id, endpoint = next((key, value) for key, value in objects.items() if "apiEndpointConfigurations" in key)
    more_id, more_endpoint = f"{model_id}-{name}", f"{endpoint_id}-{name}"
    objects[more_id] = {**model, "name": name, "object_id": more_id, "deployment_name": name, "endpoint_object_id": more_endpoint}
    objects[more_endpoint] = {**endpoint, "name": f"{name} endpoint", "object_id": more_endpoint, "url": casting.url}
    reference = {"object_id": more_id, "properties": {"object_role": "fallback_model"}}
    body["agent"]["tools"] = [{"name": "ClaudeCodeSandbox", "resource_object_ids": {more_id: reference}, "properties": {}}]


async def test_a_turn_goes_on_with_a_fallback_when_the_main_model_is_overloaded(stage: Stage) -> None:
    """The main model answers once and is overloaded then; its second call and the last are the fallback's."""
    first = bash("echo one > work.txt", usage=USED)
    main = stage.model(first, Step(http=HttpAnswer(status=529)), when_over="repeat_last")
    second = stage.model(says("never"), bash("echo two >> work.txt", usage=USED), says("Both are there.", usage=USED))
    body = main.completion("Write two lines.", small_model="claude-haiku-4-5")
    add_fallback(body, second, "claude-second")
    turn = await stage.finished(await stage.caller.start(body))
    assert (turn.status, turn.answer) == ("Completed", "Both are there.")
    assert (await stage.archive(turn))["workspace/work.txt"] == b"one\ntwo\n"
    receipt = turn.receipt
    remark = "The model 'scripted-model' was overloaded; 'claude-second' answered in its place."
    assert [said for said in receipt.remarks if "model" in said] == [remark]
    assert turn.result["content"][0]["value"].count(remark) == 1
    assert [(one.role, one.model, one.endpoint, one.usage.model_calls, one.usage.total_tokens, one.cost) for one in receipt.models] == [
        ("main_model", "scripted-model", "AnthropicAPI", 1, 1100, "0.001100"),
        ("fallback_model", "claude-second", "claude-second endpoint", 2, 2200, "0.040000"),
    ]
    assert (receipt.cost, receipt.currency, receipt.prices) == ("0.041100", "EUR", "our contract, 2026-11-01")
    assert receipt.usage.total_tokens == 3300
    metadata = turn.artifacts("WorkflowExecution")[0]["metadata"]
    assert (metadata["cost"], metadata["cost_currency"]) == ("0.041100", "EUR")
    assert [one["model"] for one in json.loads(metadata["usage_by_model"])] == ["scripted-model", "claude-second"]
    assert "EUR 0.0411" in turn.result["content"][0]["value"]
    assert MODEL_KEY not in json.dumps([body, turn.polls])
    events = [event async for event in stage.caller.events(turn.operation_id)]
    assert [event["model"] for event in events if event["type"] == "model_call"] == ["scripted-model", "claude-second", "claude-second"]
    assert [event["message"] for event in events if event["type"] == "warning"] == [remark]
