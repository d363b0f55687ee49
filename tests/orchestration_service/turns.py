"""Completions as the platform sends them, and what a run leaves behind, for the tests of the flow's stages."""

import json
from pathlib import Path
from typing import Any

from orchestration_service.planning import Continuing, Planned, SandboxLimits, make_plan
from workflow_schemas.manifest import OutputFile, PatchFacts, RunManifest
from workflow_schemas.platform import CompletionRequest
from workflow_schemas.receipt import Receipt, StoredFile
from workflow_schemas.usage import Usage

SAMPLES = Path(__file__).resolve().parents[1] / "contracts" / "samples" / "orchestration"
RUN = "0123456789abcdef"
INSTANCE = "/instances/7c1b6f0e-4a52-4d0b-9a86-2f6e5d3b9c10/providers"
MODEL = f"{INSTANCE}/FoundationaLLM.AIModel/aiModels/ClaudeSonnet"
PROMPT = f"{INSTANCE}/FoundationaLLM.Prompt/prompts/RepoHelper-Main"
WORKFLOW = f"{INSTANCE}/FoundationaLLM.Agent/workflows/ExternalAgentWorkflow"


def sample() -> dict[str, Any]:
    """A completion as an unmodified platform sends it."""
    found = json.loads((SAMPLES / "llm_completion_request.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def asked(change: dict[str, Any] | None = None, **more: Any) -> CompletionRequest:
    """The sample with other workflow properties and other top-level fields."""
    body = sample() | more
    if change is not None:
        body["agent"]["workflow"]["properties"] = change
    return CompletionRequest.model_validate(body)


def plan(request: CompletionRequest, *, continuing: Continuing | None = None, **limits: Any) -> Planned:
    return make_plan(request, run_id=RUN, turn_number=3, limits=SandboxLimits(**limits), continuing=continuing)


def file(name: str = "a.zip", order: int = 1, *, current: bool = True) -> dict[str, Any]:
    object_id = f"{INSTANCE}/FoundationaLLM.Context/files/file-{order}"
    return {"order": order, "original_file_name": name, "object_id": object_id, "current_message_attachment": current}


def stored(name: str = "turn-003-log.txt", role: str = "log", **more: Any) -> StoredFile:
    known = {"file_id": f"file-{name}", "file_object_id": f"/files/{name}", "name": name, "role": role, "size_bytes": 5}
    return StoredFile.model_validate(known | {"sha256": "0" * 64, "integrity": "exact"} | more)


def manifest(**more: Any) -> RunManifest:
    known = {"run_id": RUN, "turn_number": 3, "end_reason": "completed", "answer": "I fixed it.", "session_id": "s-1"}
    return RunManifest.model_validate(known | more)


def output(name: str, sha256: str = "0" * 64, **more: Any) -> OutputFile:
    return OutputFile.model_validate({"name": name, "role": "output", "sha256": sha256, "size_bytes": 5, "byte_exact": True} | more)


def patch(**more: Any) -> PatchFacts:
    known = {"base_commit": "c" * 40, "base_tree": "1" * 40, "result_tree": "2" * 40, "proven": True, "files_changed": 2}
    return PatchFacts.model_validate(known | {"insertions": 3, "deletions": 1, "changed_paths": ["a.py", "b.py"]} | more)


def receipt(**more: Any) -> Receipt:
    usage = Usage(model_calls=4, input_tokens=10, cache_read_tokens=20, output_tokens=5)
    known = {"operation_id": "op-1", "turn_number": 3, "end_reason": "completed", "seconds": 12.34, "usage": usage}
    return Receipt.model_validate(known | more)
