"""The answer obeys the platform's reader, links what it lists, and is honest about how the turn ended."""

import json
import re
from typing import Any

import pytest

from orchestration_service.answering import compose
from tests.orchestration_service.turns import asked, file, manifest, patch, plan, receipt, stored
from workflow_schemas.manifest import RunManifest
from workflow_schemas.platform import CompletionRequest, CompletionResponse, to_wire
from workflow_schemas.receipt import Receipt
from workflow_schemas.usage import Usage

PATCH = stored("turn-003-changes.patch.txt", "patch")
IMAGE = stored("turn-003-plot.png", "output")
FAILURES = ["model_error", "agent_error", "input_error", "refused", "runner_crashed", "sandbox_lost"]
ENDINGS = ["max_turns", "deadline", "interrupted", "budget"]


def answered(run: RunManifest | None = None, told: Receipt | None = None, request: CompletionRequest | None = None) -> CompletionResponse:
    run, request = run or manifest(), request or asked()
    told = told or receipt(end_reason=run.end_reason, detail=run.detail)
    return compose(request, "op-1", plan(request), run, told)


def wire(answer: CompletionResponse) -> dict[str, Any]:
    found = json.loads(to_wire(answer))
    assert isinstance(found, dict)
    return found


def shown(answer: CompletionResponse) -> str:
    return str(wire(answer)["content"][0]["value"])


def test_the_json_obeys_the_platforms_reader() -> None:
    """`type` first in every item, texts in metadata, lists where lists are read, numbers where numbers are."""
    body = wire(answered(manifest(patch=patch()), receipt(files=(PATCH, IMAGE, stored())), asked(file_history=[file()])))
    assert [next(iter(item)) for item in body["content"]] == ["type", "type"]
    assert isinstance(body["content"][0]["annotations"], list)
    for item in (*body["content"], *body["content"][0]["annotations"]):
        assert item["agent_capability_category"] == "FoundationaLLM.KnowledgeManagement"
    for artifact in body["content_artifacts"]:
        assert artifact["id"]
        assert all(isinstance(value, str) for value in artifact["metadata"].values())
    assert all(isinstance(body[name], int) for name in ("prompt_tokens", "completion_tokens"))
    assert (body["prompt_tokens"], body["completion_tokens"], body["id"], body["is_error"]) == (30, 5, "op-1-result", False)


def test_every_link_has_an_annotation_and_every_annotation_a_link() -> None:
    answer = answered(told=receipt(files=(PATCH, stored(), IMAGE, stored("turn-003-workspace.tar", "workspace"))))
    links = re.findall(r"\(sandbox:/mnt/data/([^)]*)\)", shown(answer))
    annotations = wire(answer)["content"][0]["annotations"]
    assert links == [found["text"] for found in annotations] == [PATCH.name, "turn-003-log.txt", "turn-003-workspace.tar"]
    assert [found["file_id"] for found in annotations] == [f"file-{name}" for name in links]


def test_a_picture_is_shown_not_linked() -> None:
    body = wire(answered(told=receipt(files=(IMAGE,))))
    assert [(item["type"], item.get("file_id")) for item in body["content"]] == [("text", None), ("image_file", IMAGE.file_id)]
    assert body["content"][0]["annotations"] == []


def test_a_picture_of_another_role_is_a_file() -> None:
    assert len(wire(answered(told=receipt(files=(stored("turn-003-x.png", "workspace"),))))["content"]) == 1


def test_a_name_that_would_break_a_link_is_shown_as_it_is() -> None:
    answer = answered(told=receipt(files=(stored("turn-003-](http://x) `y`.txt", "output", integrity="unlisted"),)))
    assert "sandbox:" not in shown(answer)
    assert "`turn-003-](http://x) 'y'.txt` (not in the manifest)" in shown(answer)


@pytest.mark.parametrize(
    ("integrity", "words"),
    [("exact", ""), ("re-encoded", "re-encoded"), ("mismatch", "differs"), ("unlisted", "not in the manifest"), ("unread", "not checked")],
)
def test_doubts_about_a_file_stand_beside_it(integrity: str, words: str) -> None:
    answer = answered(told=receipt(files=(stored(integrity=integrity),)))
    line = next(line for line in shown(answer).splitlines() if "turn-003-log.txt" in line)
    assert words in line
    assert bool(words) == ("(" in line.rpartition(")")[0].partition(")")[2])


def test_the_artifacts_of_a_turn() -> None:
    request = asked(file_history=[file("a.zip", 1), file("b.md", 2)])
    answer = answered(manifest(patch=patch()), receipt(files=(PATCH, stored())), request)
    found = {(artifact["type"], artifact["title"]): artifact for artifact in wire(answer)["content_artifacts"]}
    assert list(found) == [
        ("File", f"Patch {PATCH.name}"),
        ("File", "Log turn-003-log.txt"),
        ("git", "Changes"),
        ("log", "Log"),
        ("source", "a.zip"),
        ("source", "b.md"),
        ("WorkflowExecution", "ClaudeCodeWorkflow"),
    ]
    assert found["File", f"Patch {PATCH.name}"]["filepath"] == PATCH.file_id
    assert found["git", "Changes"]["filepath"] == PATCH.file_id
    assert found["git", "Changes"]["content"] == "2 files changed, 3 insertions, 1 deletions\na.py\nb.py"
    assert found["source", "a.zip"]["filepath"] == "file-1"
    usage = found["WorkflowExecution", "ClaudeCodeWorkflow"]["metadata"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["model_calls"], usage["session_id"]) == ("30", "5", "4", "s-1")
    assert "error_message" not in usage


def test_a_turn_without_changes_has_no_git_artifact() -> None:
    answer = answered(manifest(patch=patch(files_changed=0, changed_paths=[])))
    assert "git" not in [artifact["type"] for artifact in wire(answer)["content_artifacts"]]
    assert "no files changed" in shown(answer)


@pytest.mark.parametrize("end", FAILURES)
def test_a_failed_end_is_an_error_that_says_why(end: str) -> None:
    body = wire(answered(manifest(end_reason=end, detail="the reason", answer="")))
    assert body["is_error"] is True
    assert body["errors"] == [f"{end}: the reason"]
    assert "the reason" in body["completion"], "the portal shows only this for a failure"
    assert body["content_artifacts"][-1]["metadata"]["error_message"] == "the reason"


@pytest.mark.parametrize("end", ENDINGS)
def test_a_stopped_turn_is_an_answer(end: str) -> None:
    body = wire(answered(manifest(end_reason=end, answer="So far.")))
    assert (body["is_error"], body["errors"]) == (False, [])
    assert body["completion"].startswith("So far.\n\nThe agent was stopped")


def test_an_agent_without_words_still_gets_an_answer() -> None:
    assert wire(answered(manifest(answer=" ")))["completion"] == "The agent ended without an answer."


def test_a_patch_that_is_not_proven_is_not_praised() -> None:
    text = shown(answered(manifest(patch=patch(proven=False, reason="it does not apply"))))
    assert "not proven: it does not apply" in text
    assert "proven to apply" not in text


def test_what_was_lost_and_remarked_is_listed() -> None:
    text = shown(answered(told=receipt(lost=("a.txt: did not arrive",), remarks=("One thing.",), processes_left=2)))
    assert "- Not kept: a.txt: did not arrive" in text
    assert "- One thing." in text
    assert "2 processes left" in text


@pytest.mark.parametrize("end", ["completed", "model_error"])
def test_settings_that_are_wrong_are_named_once_and_in_both_texts(end: str) -> None:
    """The portal shows the content of an answer, and the bare text of a failure; a caller without a conversation gets that text only."""
    request = asked({"max_turns": "many"})
    (said,) = plan(request).remarks
    told = receipt(end_reason=end, remarks=(said, "The runner's own remark."))
    answer = answered(manifest(end_reason=end), told, request)
    assert shown(answer).count(said) == wire(answer)["completion"].count(said) == 1
    assert f"**Settings of this agent** that an administrator should look at:\n\n- {said}" in wire(answer)["completion"]
    assert "- The runner's own remark." in shown(answer)


def test_many_wrong_settings_are_a_short_list() -> None:
    text = wire(answered(request=asked({f"unknown_{number}": 1 for number in range(100)})))["completion"]
    assert text.count("is not known") == 8
    assert text.endswith("- … and 92 more")


def test_huge_answers_and_lists_are_cut() -> None:
    remarks = tuple(f"remark {number}\n# not a heading " + "x" * 5000 for number in range(500))
    told = receipt(remarks=remarks, lost=remarks, detail="y" * 10_000)
    body = wire(answered(manifest(answer="word " * 100_000, patch=patch(changed_paths=["p" * 4000] * 200)), told))
    assert "the whole answer is in the log" in body["completion"]
    assert len(json.dumps(body)) < 250_000
    assert "\n# not a heading" not in body["content"][0]["value"]
    assert "and 480 more" in body["content"][0]["value"]
    kept = json.loads(body["content_artifacts"][-1]["metadata"]["receipt"])
    assert kept["operation_id"] == "op-1", "a receipt that was cut can still be read"


def test_more_tokens_than_a_number_of_the_platform_holds() -> None:
    body = wire(answered(told=receipt(usage=Usage(input_tokens=2**40, output_tokens=2**40))))
    assert (body["prompt_tokens"], body["completion_tokens"]) == (2**31 - 1, 2**31 - 1)


def test_half_characters_reach_nobody() -> None:
    to_wire(answered(manifest(answer="half \ud83d", detail="\ud83d"), receipt(remarks=("fine",))))


@pytest.mark.parametrize(
    ("is_new", "prompt", "name"),
    [
        (False, "Fix it.", None),
        (True, "Fix  it\nplease.", "Fix it please."),
        (True, "word " * 40, "word word word word word word word word word word word word…"),
        (True, "x" * 200, "x" * 59 + "…"),
    ],
    ids=["known", "short", "words", "one word"],
)
def test_a_new_conversation_gets_a_name(is_new: bool, prompt: str, name: str | None) -> None:
    answer = answered(request=asked(is_new_conversation=is_new, user_prompt=prompt))
    assert wire(answer).get("conversation_name") == name
    assert name is None or len(name) <= 60
