"""The runtime samples of the deployment contract: what platform readers were shown, and where we are stricter."""

import json
from pathlib import Path
from typing import Any

import pytest

from workflow_schemas.platform import LongRunningOperation, ServiceStatusInfo, to_wire

RESOURCES = Path(__file__).parent / "samples" / "resources"


def sample(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((RESOURCES / f"runtime.{name}.json").read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize("name", ["accepted-202", "status-inprogress", "status-completed", "status-failed"])
def test_what_we_write_of_a_sample_agrees_with_it(name: str) -> None:
    """Every value we write stands in the sample; what we leave out is null there, ignored on input, or a default."""
    given = sample(name)
    written = json.loads(to_wire(LongRunningOperation.model_validate(given)))
    assert given.items() >= {key: value for key, value in written.items() if key != "result"}.items()
    left_out = given.keys() - written.keys()
    assert left_out <= {"id", "type", "ttl", "result"}
    result, shown = written.get("result", {}), given["result"] or {}
    assert all(result[key] == value for key, value in shown.items() if key in {"completion", "user_prompt", "errors"})


def test_annotations_get_the_category_the_sample_forgot() -> None:
    """The sample's annotation lacks `agent_capability_category`, which .NET demands: ours always carry it."""
    operation = LongRunningOperation.model_validate(sample("status-completed"))
    (item,) = json.loads(to_wire(operation))["result"]["content"]
    (annotation,) = item["annotations"]
    assert annotation == {
        "type": "file_path",
        "agent_capability_category": "FoundationaLLM.KnowledgeManagement",
        "text": "summarise.py",
        "file_id": "file-2026-0001",
    }


def test_the_service_status_sample_differs_in_case_only() -> None:
    """The platform compares the status word without regard to case; we write it as its constants do."""
    given = sample("service-status")
    ours = ServiceStatusInfo(instance_id=given["instance_id"], instance_name=given["instance_name"], version=given["version"])
    written = json.loads(to_wire(ours))
    assert written.pop("status").casefold() == given.pop("status").casefold()
    assert given.items() >= written.items()
