"""From a finished run to the platform's completion response. Pure.

The portal renders Markdown, makes a download of every `(sandbox:/mnt/data/NAME)` link that has an annotation of that name, and shows every
artifact as a chip (contract: orchestration §2.4, §4.3–4.4).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from orchestration_service.cost_words import cost_in_dollars, cost_in_words, cost_metadata, models_in_words
from orchestration_service.planning import Planned
from workflow_schemas.manifest import EndReason, RunManifest
from workflow_schemas.platform import (
    CompletionRequest,
    CompletionResponse,
    ContentArtifact,
    ContentItem,
    FileAnnotation,
    ImageItem,
    TextItem,
    result_id,
)
from workflow_schemas.platform_response import INT32_MAX
from workflow_schemas.receipt import Integrity, Receipt, StoredFile

_SOURCE = "ClaudeCode"
_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tiff"})
_ARTIFACT_CHARACTERS = 4_000
_ANSWER_CHARACTERS = 60_000
_REMARKS = 20
_SETTINGS = 8
_REMARK_CHARACTERS = 500
_LABELS: Mapping[str, str] = {
    "patch": "Patch",
    "workspace": "Workspace archive",
    "seal": "Seal of the turn",
    "events": "Event log",
    "log": "Log",
    "manifest": "Manifest",
    "output": "File",
}
_DOUBTS: Mapping[Integrity, str] = {
    "exact": "",
    "re-encoded": " (re-encoded as UTF-8)",
    "mismatch": " (**differs from what was written**)",
    "unlisted": " (not in the manifest)",
    "unread": " (not checked)",
}
_ENDINGS: Mapping[EndReason, str] = {
    "completed": "",
    "max_turns": "The agent was stopped because it used up its model calls. Say *continue* to go on.",
    "deadline": "The agent was stopped because the time was up. Say *continue* to go on.",
    "interrupted": "The agent was stopped.",
    "budget": "The agent was stopped because the token budget was spent.",
    "model_error": "The model could not be used",
    "agent_error": "The agent could not do its work",
    "input_error": "The attached files could not be used",
    "refused": "The agent was not started",
    "runner_crashed": "The runner in the sandbox was restarted in the middle of the turn.",
    "sandbox_lost": "The sandbox was lost in the middle of the turn.",
}


def failed(end: EndReason) -> bool:
    """Whether a turn that ended so is a failure for the platform; a stopped turn with results is not."""
    return end in ("model_error", "agent_error", "input_error", "refused", "runner_crashed", "sandbox_lost")


def compose(request: CompletionRequest, operation_id: str, planned: Planned, manifest: RunManifest, receipt: Receipt) -> CompletionResponse:
    """Return the answer of a turn."""
    text = "\n\n".join(part for part in (_answer(manifest, receipt), _settings_text(planned.remarks)) if part)
    downloads = [file for file in receipt.files if not _is_image(file)]
    listed = "\n".join(f"- {_LABELS.get(file.role, 'File')}: {_link(file)}{_doubt(file)}" for file in downloads)
    shown = "\n\n".join(
        part for part in (text, f"**Files**\n\n{listed}" if listed else "", _receipt_text(receipt, manifest, planned.remarks)) if part
    )
    annotations = [FileAnnotation(text=file.name, file_id=file.file_id) for file in downloads]
    images: list[ContentItem] = [ImageItem(text=file.name, file_id=file.file_id) for file in receipt.files if _is_image(file)]
    return CompletionResponse(
        id=result_id(operation_id),
        operation_id=operation_id,
        user_prompt=request.user_prompt,
        user_prompt_rewrite=request.user_prompt_rewrite or None,
        full_prompt=planned.full_prompt,
        completion=text,
        content=[TextItem(value=shown, annotations=annotations), *images],
        analysis_results=[],
        content_artifacts=artifacts(request, planned, manifest, receipt),
        conversation_name=_conversation_name(request) if request.is_new_conversation else None,
        agent_name=request.agent.name,
        prompt_tokens=min(receipt.usage.prompt_tokens, INT32_MAX),
        completion_tokens=min(receipt.usage.output_tokens, INT32_MAX),
        total_cost=cost_in_dollars(receipt),
        errors=[f"{manifest.end_reason}: {manifest.detail}"] if failed(manifest.end_reason) else [],
        is_error=failed(manifest.end_reason),
    )


def artifacts(request: CompletionRequest, planned: Planned, manifest: RunManifest, receipt: Receipt) -> list[ContentArtifact]:
    """Return the artifacts of a turn: files, the change, the log, what it was based on, and the execution with its usage."""
    found = [_file_artifact(file, request.session_id) for file in receipt.files]
    if manifest.patch is not None and manifest.patch.files_changed:
        found.append(_git_artifact(manifest, receipt))
    log = next((file for file in receipt.files if file.role == "log"), None)
    if log is not None:
        found.append(
            ContentArtifact(
                id=f"{_SOURCE}-log",
                title="Log",
                type="log",
                source=_SOURCE,
                filepath=log.file_id,
                content=f"{receipt.usage.model_calls} model calls; ended: {receipt.end_reason}. {receipt.detail}".strip()[
                    :_ARTIFACT_CHARACTERS
                ],
                metadata={"file_object_id": log.file_object_id, "original_file_name": log.name},
            )
        )
    found += [
        ContentArtifact(
            id=f"{_SOURCE}-source-{number}",
            title=item.original_file_name,
            type="source",
            source="file",
            filepath=item.file_id or item.object_id,
            metadata={"file_object_id": item.object_id, "original_file_name": item.original_file_name, "content_type": item.content_type},
        )
        for number, item in enumerate(planned.sources, start=1)
    ]
    found.append(_execution_artifact(request, manifest, receipt))
    return found


def _file_artifact(file: StoredFile, conversation_id: str) -> ContentArtifact:
    return ContentArtifact(
        id=_SOURCE,
        title=f"{_LABELS.get(file.role, 'File')} {file.name}",
        type="File",
        source=_SOURCE,
        filepath=file.file_id,
        metadata={
            "file_object_id": file.file_object_id,
            "original_file_name": file.name,
            "file_path": file.file_path,
            "file_size": str(file.size_bytes),
            "content_type": file.content_type,
            "conversation_id": conversation_id,
            "sha256": file.sha256,
            "integrity": file.integrity,
            "role": file.role,
        },
    )


def _git_artifact(manifest: RunManifest, receipt: Receipt) -> ContentArtifact:
    patch = manifest.patch
    assert patch is not None
    stored = next((file for file in receipt.files if file.role == "patch"), None)
    numbers = f"{patch.files_changed} files changed, {patch.insertions} insertions, {patch.deletions} deletions"
    return ContentArtifact(
        id=f"{_SOURCE}-git",
        title="Changes",
        type="git",
        source="workspace",
        filepath=stored.file_id if stored else None,
        content="\n".join([numbers, *patch.changed_paths])[:_ARTIFACT_CHARACTERS],
        metadata={
            "base_commit": patch.base_commit or "",
            "base_tree": patch.base_tree,
            "result_tree": patch.result_tree,
            "proven": str(patch.proven).lower(),
            "files_changed": str(patch.files_changed),
            "insertions": str(patch.insertions),
            "deletions": str(patch.deletions),
        },
    )


def _execution_artifact(request: CompletionRequest, manifest: RunManifest, receipt: Receipt) -> ContentArtifact:
    usage = receipt.usage
    return ContentArtifact(
        id="ClaudeCodeWorkflow",
        title="ClaudeCodeWorkflow",
        type="WorkflowExecution",
        source="ClaudeCodeWorkflow",
        content=request.user_prompt[:_ARTIFACT_CHARACTERS],
        metadata={
            "prompt_tokens": str(usage.prompt_tokens),
            "completion_tokens": str(usage.output_tokens),
            "completion_time_seconds": f"{receipt.seconds:.1f}",
            "model_calls": str(usage.model_calls),
            **cost_metadata(receipt),
            "end_reason": receipt.end_reason,
            "turn_number": str(receipt.turn_number),
            "session_id": manifest.session_id,
            "sandbox": receipt.sandbox,
            "wall": receipt.wall.level if receipt.wall else "",
            "receipt": _short_receipt(receipt),
            **({"error_message": receipt.detail} if failed(receipt.end_reason) else {}),
        },
    )


def _answer(manifest: RunManifest, receipt: Receipt) -> str:
    ending = _ENDINGS[manifest.end_reason]
    if failed(manifest.end_reason) and manifest.detail:
        ending = f"{ending.rstrip('.')}: {manifest.detail}"
    answer = manifest.answer.strip()
    if len(answer) > _ANSWER_CHARACTERS:
        answer = f"{answer[:_ANSWER_CHARACTERS]}\n\n… (the whole answer is in the log)"
    return "\n\n".join(part for part in (answer, ending) if part) or "The agent ended without an answer."


def _settings_text(remarks: Sequence[str]) -> str:
    """Name the settings that are not in force as they were written, for whoever can put them right."""
    if not remarks:
        return ""
    shown = _listed(remarks, most=_SETTINGS)
    return "\n".join(["**Settings of this agent** that an administrator should look at:", "", *shown])


def _receipt_text(receipt: Receipt, manifest: RunManifest, told: Sequence[str]) -> str:
    """Return the last lines of an answer.

    Args:
        receipt: The receipt.
        manifest: What the runner told.
        told: Remarks that stand elsewhere in the answer.
    """
    patch = ""
    if manifest.patch is not None:
        patch = "no files changed"
        if manifest.patch.files_changed:
            patch = f"{manifest.patch.files_changed} files changed (+{manifest.patch.insertions} −{manifest.patch.deletions}), "
            patch += "patch proven to apply" if manifest.patch.proven else f"patch not proven: {manifest.patch.reason}"
    usage = receipt.usage
    facts = [
        f"turn {receipt.turn_number}, {receipt.began.workspace} workspace",
        f"ended: {receipt.end_reason}",
        f"{receipt.seconds:.0f} s",
        f"{usage.model_calls} model calls, {usage.total_tokens:,} tokens",
        cost_in_words(receipt),
        patch,
        f"{receipt.processes_left} processes left",
    ]
    lines = [f"*{' · '.join(fact for fact in facts if fact)}*"]
    if receipt.wall is not None and manifest.end_reason != "refused":  # else no agent stood behind it
        lines.append(f"*wall between agent and runner: {' '.join(receipt.wall.in_words().split())[:_REMARK_CHARACTERS]}*")
    if models := models_in_words(receipt):
        lines.append(f"*models: {models}*")
    lines += _listed([f"Not kept: {entry}" for entry in receipt.lost])
    lines += _listed([remark for remark in receipt.remarks if remark not in told])
    return "\n".join(lines)


def _listed(entries: Sequence[str], most: int = _REMARKS) -> list[str]:
    """Return a bounded list of single lines: remarks may quote what a sandbox said."""
    lines = [f"- {' '.join(entry.split())[:_REMARK_CHARACTERS]}" for entry in entries[:most]]
    return [*lines, f"- … and {len(entries) - most} more"] if len(entries) > most else lines


def _short_receipt(receipt: Receipt) -> str:
    """Return the receipt as JSON that can be read back; where it is too long, words about the wall and the lists go first."""
    without: dict[str, Any] = {"files": True}
    for more in ({}, {"wall": {"words", "why_not_stronger"}}, {"remarks": True}, {"lost": True, "steps": True, "detail": True}):
        without |= more
        text = receipt.model_dump_json(exclude=without)
        if len(text) <= _ARTIFACT_CHARACTERS:
            break
    return text


def _link(file: StoredFile) -> str:
    """Return a Markdown link that becomes a download; a name that would break it is shown as it is."""
    if re.fullmatch(r"[A-Za-z0-9._+-]+", file.name):
        return f"[{file.name}](sandbox:/mnt/data/{file.name})"
    return f"`{file.name.replace('`', chr(39))}`"


def _doubt(file: StoredFile) -> str:
    return _DOUBTS[file.integrity]


def _is_image(file: StoredFile) -> bool:
    return file.role == "output" and PurePosixPath(file.name).suffix.lower() in _IMAGES


def _conversation_name(request: CompletionRequest) -> str:
    words = " ".join(request.user_prompt.split())
    return words if len(words) <= 60 else f"{words[:60].rsplit(' ', 1)[0][:59]}…"
