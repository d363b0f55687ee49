"""The exported JSON Schemas: complete, described, stable, and true of what travels."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel

from workflow_schemas import (
    Done,
    OutputFile,
    Receipt,
    RunManifest,
    ToolStart,
    TurnPlan,
    Usage,
    WorkflowProperties,
    failed_response,
    progress_response,
    to_wire,
)
from workflow_schemas.export import INDEX, main, write_schemas
from workflow_schemas.json_schema import public_models, schemas

SAMPLES = Path(__file__).parents[1] / "contracts" / "samples"
SCHEMAS = schemas()


def properties_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of a schema and of the models in it, with a name to show."""
    for owner, part in (("", schema), *schema.get("$defs", {}).items()):
        for name, item in part.get("properties", {}).items():
            yield f"{owner}.{name}", item


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_and_describes_everything(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (schema["title"], schema["$id"]) == (name, f"{name}.schema.json")
    assert schema["description"]
    assert [where for where, item in properties_of(schema) if not (item.get("title") and item.get("description"))] == []
    assert [kind for kind, part in schema.get("$defs", {}).items() if "properties" in part and not part.get("description")] == []


def test_every_model_of_the_facade_is_exported() -> None:
    assert set(SCHEMAS) == {*public_models(), "Event", "ContentItem"}
    assert {"TurnPlan", "RunManifest", "Receipt", "WorkflowProperties", "CompletionRequest", "CompletionResponse"} <= set(SCHEMAS)


def test_exporting_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = write_schemas(tmp_path / "a"), write_schemas(tmp_path / "b" / "c")
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_command_writes_a_file_per_model_and_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    index = json.loads((tmp_path / INDEX).read_text())
    assert {entry["file"] for entry in index["schemas"]} | {INDEX} == {path.name for path in tmp_path.iterdir()}
    assert [entry["name"] for entry in index["schemas"]] == sorted(SCHEMAS)
    assert capsys.readouterr().out == f"{len(SCHEMAS) + 1} files in {tmp_path}\n"


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        pytest.param("CompletionRequest", "orchestration/llm_completion_request.json", id="request"),
        pytest.param("CompletionResponse", "orchestration/llm_completion_response.json", id="response"),
        pytest.param("LongRunningOperation", "resources/runtime.accepted-202.json", id="accepted"),
        pytest.param("LongRunningOperation", "resources/runtime.status-failed.json", id="failed"),
        pytest.param("LongRunningOperation", "resources/runtime.status-inprogress.json", id="in progress"),
        pytest.param("Agent", "resources/agent.claude-code.generic-workflow.json", id="agent"),
        pytest.param("AIModel", "resources/aimodel.ClaudeSonnetCompletionAIModel.json", id="model"),
        pytest.param("EndpointConfiguration", "resources/apiEndpoint.Anthropic.json", id="endpoint"),
        pytest.param("Prompt", "resources/prompt.claude-code-system.json", id="prompt"),
    ],
)
def test_a_sample_of_the_platform_fits_its_schema(name: str, sample: str) -> None:
    check(name, json.loads((SAMPLES / sample).read_text(encoding="utf-8")))


@pytest.mark.parametrize("state", ["accepted_202", "in_progress_200", "completed_200", "failed_200"])
def test_each_state_of_an_operation_fits(state: str) -> None:
    check("LongRunningOperation", json.loads((SAMPLES / "orchestration" / "long_running_operation.json").read_text())[state])


def test_the_sample_that_forgot_what_dotnet_demands_does_not_fit() -> None:
    """Its annotation lacks the capability category; a writer who goes by our schema cannot forget it."""
    sample = json.loads((SAMPLES / "resources" / "runtime.status-completed.json").read_text())
    validator = Draft202012Validator(SCHEMAS["LongRunningOperation"])
    assert not validator.is_valid(sample)
    sample["result"]["content"][0]["annotations"][0]["agent_capability_category"] = "FoundationaLLM.KnowledgeManagement"
    assert validator.is_valid(sample)


USAGE = Usage(model_calls=2, input_tokens=10)
FILE = OutputFile(name="turn-001.zip", role="workspace", sha256="0" * 64, size_bytes=1, byte_exact=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("Usage", USAGE, id="usage"),
        pytest.param("WorkflowProperties", WorkflowProperties(), id="properties"),
        pytest.param("RunManifest", RunManifest(run_id="r", turn_number=1, end_reason="completed", outputs=(FILE,)), id="manifest"),
        pytest.param("Receipt", Receipt(operation_id="o", turn_number=1, end_reason="deadline", seconds=1.5, usage=USAGE), id="receipt"),
        pytest.param("Event", ToolStart(name="Bash", input={"command": "ls"}), id="event"),
        pytest.param("Done", Done(session_id="s", turns=3), id="done"),
        pytest.param("CompletionResponse", progress_response("o", "Working."), id="progress"),
        pytest.param("CompletionResponse", failed_response("o", "Sorry."), id="failure"),
    ],
)
def test_what_we_write_fits_its_schema(name: str, value: BaseModel) -> None:
    check(name, json.loads(to_wire(value)))
    check(name, value.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("WorkflowProperties", {"max_turns": 0}, id="out of bounds"),
        pytest.param("WorkflowProperties", {"max_turn": 5}, id="unknown property"),
        pytest.param("Event", {"type": "nonsense"}, id="unknown event"),
        pytest.param("Event", {"content": "no type"}, id="event without a type"),
        pytest.param("TurnPlan", {"run_id": "../../etc"}, id="hostile name"),
        pytest.param("CompletionResponse", {"operation_id": "o", "completion": None}, id="null where text is needed"),
    ],
)
def test_what_is_wrong_does_not_fit(name: str, value: object) -> None:
    assert not Draft202012Validator(SCHEMAS[name]).is_valid(value)


def test_a_plan_fits_its_schema() -> None:
    limits = {
        "soft_seconds": 1,
        "hard_seconds": 2,
        "max_turns": 3,
        "command_timeout_seconds": 4,
        "max_output_bytes": 2048,
        "max_unpacked_bytes": 2048,
    }
    plan = {"run_id": "12345678", "turn_number": 1, "prompt": "p", "system_prompt": "s", "model": "m", "tools": ["Read"], "limits": limits}
    check("TurnPlan", {**plan, "output_stem": "turn-001"})
    check("TurnPlan", TurnPlan.model_validate({**plan, "output_stem": "turn-001"}).model_dump(mode="json"))


def check(name: str, value: object) -> None:
    """Fail with every place where the value does not fit."""
    faults = [f"{fault.json_path}: {fault.message[:200]}" for fault in Draft202012Validator(SCHEMAS[name]).iter_errors(value)]
    assert faults == []
