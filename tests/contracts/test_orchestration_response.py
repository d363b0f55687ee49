"""What we answer, held against the carried samples and against the rules of a .NET 8 reader.

`dotnet_reads` knows those rules; it is written from the contract and not from our models, so both cannot be wrong alike.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workflow_schemas.platform import (
    AnalysisResult,
    CompletionResponse,
    ContentArtifact,
    FileAnnotation,
    ImageItem,
    LongRunningOperation,
    ServiceStatusInfo,
    TextItem,
    failed_response,
    progress_response,
    to_wire,
)

SAMPLES = Path(__file__).parent / "samples" / "orchestration"
CATEGORY = "FoundationaLLM.KnowledgeManagement"
VARIANTS = ("accepted_202", "in_progress_200", "completed_200", "failed_200")


def dotnet_reads(operation: dict[str, Any]) -> None:
    """Fail where System.Text.Json of .NET 8, or the platform's transform after it, would throw."""
    assert operation["status"] in {"InProgress", "Completed", "Failed"}
    for number in ("ttl", "prompt_tokens"):
        assert type(operation.get(number, 0)) is int
    result = operation.get("result")
    if operation["status"] != "InProgress":
        assert isinstance(result, dict), "an end without a result is never persisted"
    if result is None:
        return
    for number in ("prompt_tokens", "completion_tokens"):
        assert type(result.get(number, 0)) is int
    assert isinstance(result.get("total_cost", 0.0), float | int)
    for item in result.get("content") or []:
        assert next(iter(item)) == "type", "the discriminator must come first"
        assert item["type"] in {"text", "image_file"}
        assert item["agent_capability_category"] == CATEGORY
        if item["type"] == "text":
            assert isinstance(item["value"], str)
            assert isinstance(item["annotations"], list)
            assert all(note["agent_capability_category"] == CATEGORY for note in item["annotations"])
    for artifact in result.get("content_artifacts") or []:
        assert artifact["id"], "readers in Python demand it"
        assert all(isinstance(value, str) for value in artifact["metadata"].values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_sample_comes_out_as_it_went_in(variant: str) -> None:
    sample = json.loads((SAMPLES / "long_running_operation.json").read_text(encoding="utf-8"))[variant]
    written = json.loads(to_wire(LongRunningOperation.model_validate(sample)))
    dotnet_reads(written)
    assert without_defaults(written) == without_defaults(sample)


def without_defaults(operation: dict[str, Any]) -> dict[str, Any]:
    """Drop what means the same whether it is there or not, and unify the two spellings of a time."""
    result = operation.get("result", {})
    for name, default in (("total_tokens", 0), ("total_cost", 0.0)):
        if result.get(name) == default:
            del result[name]
    operation["last_updated"] = datetime.fromisoformat(operation["last_updated"]).astimezone(UTC)
    return operation


def test_the_result_sample_comes_out_as_it_went_in() -> None:
    sample = json.loads((SAMPLES / "llm_completion_response.json").read_text(encoding="utf-8"))
    assert json.loads(to_wire(CompletionResponse.model_validate(sample))) == sample


def test_nothing_is_written_as_null() -> None:
    """A null where .NET expects a number ends the operation; absent is always fine."""
    operation = LongRunningOperation(operation_id="o", status="InProgress", result=progress_response("o", "Working"))
    assert b"null" not in to_wire(operation)
    assert "prompt_tokens" not in json.loads(to_wire(operation))


def test_field_order_of_items_is_the_wire_order() -> None:
    """Pinned: the discriminator first, as in the samples."""
    item = TextItem(value="see [x](sandbox:/mnt/data/x)", annotations=[FileAnnotation(text="x", file_id="f-1")])
    assert to_wire(item).decode() == (
        '{"type":"text","agent_capability_category":"FoundationaLLM.KnowledgeManagement","annotations":[{"type":'
        '"file_path","agent_capability_category":"FoundationaLLM.KnowledgeManagement","text":"x","file_id":"f-1"}],'
        '"value":"see [x](sandbox:/mnt/data/x)"}'
    )
    assert to_wire(ImageItem(file_id="f-2")).startswith(b'{"type":"image_file","agent_capability_category":')


@pytest.mark.parametrize("text", ["", "Reading", "ä \U0001f600", "half \ud83d of a pair", "nul \x00 and \x1b[31m"], ids=ascii)
def test_progress_is_one_text_item(text: str) -> None:
    """Any text a sandbox can produce becomes exactly one readable text item."""
    operation = LongRunningOperation(operation_id="o", status="InProgress", result=progress_response("o", text))
    written = json.loads(to_wire(operation).decode())
    dotnet_reads(written)
    (item,) = written["result"]["content"]
    assert item["value"] == text.replace("\ud83d", "\ufffd")


def test_a_failure_carries_what_the_user_reads() -> None:
    result = failed_response("o", "The model could not be reached.", user_prompt="Fix it", errors=["HTTP 529"])
    written = json.loads(to_wire(LongRunningOperation(operation_id="o", status="Failed", result=result)))
    dotnet_reads(written)
    assert written["result"]["completion"] == "The model could not be reached."
    assert (written["result"]["content"], written["result"]["errors"]) == ([], ["HTTP 529"])


def test_the_result_id_is_fixed_and_not_the_operation_id() -> None:
    """A store that keeps results by id then keeps one per operation, and not in the operation's place."""
    ids = {progress_response("o", "a").id, failed_response("o", "b").id}
    assert ids == {"o-result"}


def test_everything_at_once_is_readable() -> None:
    result = CompletionResponse(
        operation_id="o",
        completion="done",
        content=[TextItem(value="done", annotations=[FileAnnotation(text="a.zip", file_id="f")]), ImageItem(file_id="g")],
        analysis_results=[AnalysisResult(tool_name="Bash", tool_input="ls")],
        content_artifacts=[ContentArtifact(id="Bash", type="ToolExecution", metadata={"exit_code": "0"})],
        conversation_name="Fixing",
        prompt_tokens=1,
        completion_tokens=2,
        total_cost=0.25,
    )
    written = json.loads(to_wire(LongRunningOperation(operation_id="o", status="Completed", result=result)))
    dotnet_reads(written)
    assert written["result"]["total_tokens"] == 3


NOT_SENDABLE = {
    "number-in-metadata": lambda: ContentArtifact(id="a", metadata={"exit_code": 0}),
    "null-in-metadata": lambda: ContentArtifact(id="a", metadata={"exit_code": None}),
    "no-artifact-id": lambda: ContentArtifact(id=""),
    "null-text": lambda: TextItem(value=None),
    "null-annotations": lambda: TextItem(value="x", annotations=None),
    "no-file-id": lambda: ImageItem(file_id=""),
    "null-tokens": lambda: CompletionResponse(operation_id="o", completion="x", prompt_tokens=None),
    "too-many-tokens": lambda: CompletionResponse(operation_id="o", completion="x", prompt_tokens=2**31),
    "nan-cost": lambda: CompletionResponse(operation_id="o", completion="x", total_cost=float("nan")),
    "other-category": lambda: TextItem.model_validate({"value": "x", "agent_capability_category": "OpenAI.Assistants"}),
    "top-level-file": lambda: CompletionResponse.model_validate(
        {"operation_id": "o", "completion": "x", "content": [{"type": "file_path", "file_id": "f", "text": "x"}]}
    ),
    "other-status": lambda: LongRunningOperation.model_validate({"operation_id": "o", "status": "Pending"}),
}


@pytest.mark.parametrize("wrong", NOT_SENDABLE.values(), ids=NOT_SENDABLE)
def test_what_the_platform_cannot_read_cannot_be_built(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        wrong()


def test_the_state_of_the_service_names_itself() -> None:
    assert json.loads(to_wire(ServiceStatusInfo())) == {"name": "ClaudeCode", "status": "Ready"}
