"""The main job, from a completion over HTTP to checked files: one turn of every tool on an awkward repository, seen from all sides.

The turn is made once in each kind of place: on this machine, in a container, behind a session pool.
"""

import asyncio
import hashlib
import json
import re
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from context_client import NotFoundOrNotOwned
from orchestration_service.cli.client import open_caller
from tests.journeys.places import KINDS, Places, kind_of
from tests.journeys.repositories import BINARY, PICTURE, awkward_repository, git, pack_folder, tree_after
from tests.stage import Casting, Stage, Turn, bash, calls, members, open_stage, says, without_figures
from workflow_schemas.manifest import RunManifest

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # the first one to ask builds the image

ANSWER = "Corrected the greeting. 修好了。"
USAGE = {"input_tokens": 100, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 7}
LONG_ENOUGH = 0.4
"""Seconds that a state of the turn lasts, so that a poll and a batch of events fall into each."""


@dataclass
class Journey:
    """What the one turn of this module gave."""

    turn: Turn
    model: Casting
    body: dict[str, Any]
    repository: Path
    events: list[dict[str, Any]]
    archive: bytes
    patch: bytes
    manifest: RunManifest


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def stage(kind: str, places: Places, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with places.open(kind) as chosen, open_stage(tmp_path_factory.mktemp("platform"), **chosen) as opened:
        yield opened


@pytest.fixture(scope="module")
async def journey(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    repository = await anyio.to_thread.run_sync(awkward_repository, tmp_path_factory.mktemp("sources"))
    record = await stage.caller.upload("journey", "my repository.tar", await anyio.to_thread.run_sync(pack_folder, repository, "repo"))
    slow: dict[str, Any] = {"usage": USAGE, "delay_seconds": LONG_ENOUGH}
    main = "/workspace/src/main file.py"
    model = stage.model(
        calls(("Read", {"file_path": main}), text="First the code.", **slow),
        calls(("Grep", {"pattern": "helo", "path": "/workspace", "output_mode": "content"}), ("Glob", {"pattern": "**/*.txt"}), **slow),
        calls(("Edit", {"file_path": main, "old_string": "helo", "new_string": "hello"}), text="A typing error.", **slow),
        calls(("Write", {"file_path": "/workspace/neue Datei.md", "content": "# Grüße\n"}), **slow),
        bash("sh tools/change.sh", **slow),
        bash("python3 tools/outputs.py", **slow),
        says(ANSWER, **slow, chunk_delay_seconds=0.15),
        delta_chars=9,
    )
    body = model.completion("Correct the typing error.", [record], conversation="journey")
    turn = await stage.finished(await stage.caller.start(body))
    assert turn.status == "Completed", turn.answer
    events = [event async for event in stage.caller.events(turn.operation_id)]
    archive = await stage.content(turn.files["workspace"])
    patch = await stage.content(turn.files["patch"])
    manifest = RunManifest.model_validate_json(await stage.content(turn.files["manifest"]))
    return Journey(turn, model, body, repository, events, archive, patch, manifest)


async def test_the_receipt_says_where_the_turn_ran(journey: Journey, kind: str) -> None:
    assert kind_of(journey.turn.receipt.sandbox) == kind


async def test_the_patch_says_what_was_changed(journey: Journey) -> None:
    lines = journey.patch.decode("utf-8").splitlines()
    assert '-GREETING = "helo"' in lines
    assert '+GREETING = "hello"' in lines
    assert "+third\r" in journey.patch.decode().split("\n")
    assert "GIT binary patch" in lines
    assert "deleted file mode 100644" in lines
    assert {"old mode 100755", "new mode 100644"} <= set(lines)
    assert "+/etc/shadow" in lines
    assert any(line.startswith("rename from") for line in lines)


async def test_the_patch_applies_in_a_fresh_clone_and_gives_the_same_tree(journey: Journey, tmp_path: Path) -> None:
    tree = await anyio.to_thread.run_sync(tree_after, journey.repository, journey.patch, tmp_path)
    facts = journey.manifest.patch
    assert facts is not None
    assert (facts.proven, facts.base_is_commit) == (True, True)
    assert tree == facts.result_tree
    assert facts.base_commit == git(journey.repository, "rev-parse", "HEAD").strip()


async def test_the_archive_holds_the_workspace_byte_for_byte(journey: Journey) -> None:
    files = members(journey.archive)
    assert files["workspace/windows.txt"] == b"first\r\nsecond\r\nthird\r\n"
    assert files["workspace/picture.bin"] == BINARY + b"\xff\x00x"
    assert files["workspace/neue Datei.md"] == "# Grüße\n".encode()
    assert files["workspace/new.txt"] == "déjà\n".encode()
    assert files["workspace/vendor/library/lib.py"] == b"VALUE = 7\n"
    assert "workspace/empty" not in files
    assert "workspace/.git/HEAD" in files
    with tarfile.open(fileobj=BytesIO(journey.archive)) as archive:
        assert archive.getmember("workspace/outside").linkname == "/etc/shadow"
        assert archive.getmember("workspace/inside").linkname == "src/main file.py"
        assert not archive.getmember("workspace/run me.sh").mode & stat.S_IXUSR


async def test_the_archive_is_a_repository_git_can_use(journey: Journey, tmp_path: Path) -> None:
    # the system's tar keeps links that lead out of the tree, as a user's does; Python's has three minds about them
    await asyncio.to_thread(subprocess.run, ["tar", "-x", "-C", str(tmp_path)], input=journey.archive, check=True)
    status = git(tmp_path / "workspace", "status", "--porcelain", "--untracked-files=all")
    assert {line[3:].strip('"') for line in status.splitlines()} >= {"src/main file.py", "windows.txt", "empty", "outside"}
    assert git(tmp_path / "workspace", "log", "--format=%s").splitlines() == ["Start"]


async def test_the_archive_tells_the_whole_turn(journey: Journey) -> None:
    """Manifest, events, patch and transcript lie in it, since archives survive the platform byte for byte."""
    files = members(journey.archive)
    inside = RunManifest.model_validate_json(files["turn/manifest.json"])
    assert (inside.run_id, inside.answer) == (journey.manifest.run_id, ANSWER)
    assert files["turn/changes.patch"] == journey.patch
    assert len(files["turn/events.jsonl"].splitlines()) > 10
    assert all(json.loads(line) for line in files["turn/transcript.jsonl"].splitlines())


async def test_the_manifests_hashes_are_those_of_the_stored_files(stage: Stage, journey: Journey) -> None:
    """Nothing was re-encoded on the way, because text leaves the runner in a form no re-encoding changes."""
    listed = {output.name: output for output in journey.manifest.outputs}
    artifacts = {artifact["metadata"]["original_file_name"]: artifact for artifact in journey.turn.artifacts("File")}
    assert set(artifacts) - set(listed) == {"turn-001-manifest.json"}
    assert set(listed) <= set(artifacts)
    for name, output in listed.items():
        content = await stage.content(artifacts[name])
        assert hashlib.sha256(content).hexdigest() == output.sha256 == artifacts[name]["metadata"]["sha256"], name
        assert (len(content), artifacts[name]["metadata"]["integrity"]) == (output.size_bytes, "exact")


async def test_files_for_the_user_arrive_each_in_its_form(stage: Stage, journey: Journey) -> None:
    """A picture is shown, a table and a page are downloads, and what the platform refuses comes in an archive."""
    content = journey.turn.result["content"]
    assert [(item["type"], item["text"]) for item in content[1:]] == [("image_file", "turn-001-plot.png")]
    files = journey.turn.files
    assert await stage.content(files["turn-001-plot.png"]) == PICTURE
    assert zipfile.ZipFile(BytesIO(await stage.content(files["turn-001-table.xlsx"]))).testzip() is None
    assert await stage.content(files["turn-001-report.html"]) == b"<b>report</b>"
    assert members(await stage.content(files["turn-001-outputs.tar"])) == {
        "outputs/core": b"core",
        "outputs/mislabelled.png": b"no picture",
    }
    assert journey.turn.receipt.lost == ()
    names = {annotation["text"]: annotation["file_id"] for annotation in content[0]["annotations"]}
    for name, file_id in names.items():
        assert f"(sandbox:/mnt/data/{name})" in content[0]["value"]
        assert any(artifact["filepath"] == file_id for artifact in journey.turn.artifacts("File"))
    assert content[1]["file_id"] == files["turn-001-plot.png"]["filepath"]


async def test_the_artifacts_tell_what_happened_in_strings(journey: Journey) -> None:
    artifacts = journey.turn.result["content_artifacts"]
    kinds = [artifact["type"] for artifact in artifacts]
    assert kinds == ["File"] * kinds.count("File") + ["git", "log", "source", "WorkflowExecution"]
    for artifact in artifacts:
        assert all(isinstance(value, str) for value in artifact["metadata"].values()), artifact["type"]
    (change,) = journey.turn.artifacts("git")
    assert (change["metadata"]["proven"], change["filepath"]) == ("true", journey.turn.files["patch"]["filepath"])
    (source,) = journey.turn.artifacts("source")
    assert source["title"] == "my repository.tar"
    (execution,) = journey.turn.artifacts("WorkflowExecution")
    assert execution["metadata"]["end_reason"] == "completed"


async def test_the_tokens_are_the_sums_of_what_the_model_said(journey: Journey) -> None:
    result, usage = journey.turn.result, journey.turn.receipt.usage
    assert (result["prompt_tokens"], result["completion_tokens"], result["total_tokens"]) == (7 * 123, 7 * 7, 7 * 130)
    assert (usage.model_calls, usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (7, 700, 140, 21)
    assert journey.turn.artifacts("WorkflowExecution")[0]["metadata"]["prompt_tokens"] == str(7 * 123)


async def test_every_tool_call_did_what_it_should(journey: Journey) -> None:
    starts = [(event["id"], event["name"]) for event in journey.events if event["type"] == "tool_start"]
    ends = {event["id"]: event["success"] for event in journey.events if event["type"] == "tool_end"}
    assert [name for _, name in starts] == ["Read", "Grep", "Glob", "Edit", "Write", "Bash", "Bash"]
    assert [ends[tool_id] for tool_id, _ in starts] == [True] * 6 + [False]


BEFORE = ["Accepted; the turn is about to start.", "Opening a sandbox."]
STEPS = [
    "Putting the files into the workspace.",
    "my repository.tar: N files unpacked into /workspace",
    "The agent is at work.",
    "First the code.",
    "`Read /workspace/src/main file.py`",
    "`Grep helo`",
    "`Glob **/*.txt`",
    "A typing error.",
    "`Edit /workspace/src/main file.py`",
    "`Write /workspace/neue Datei.md`",
    "`Bash sh tools/change.sh`",
    "`Bash python3 tools/outputs.py`",
    ANSWER,
    "Sealing the outputs.",
    "Collecting the files.",
]
"""What a turn shows before there is a list of steps, and what the list holds, in order."""


async def test_a_portal_sees_the_turn_grow_and_end(journey: Journey) -> None:
    """Each distinct answer to a poll is the list of steps up to some point, never an earlier point than before; then comes the result.

    Polls come when they come here; `test_portal.py` holds the turn at its moments and has the exact sequence.
    """
    *running, last = journey.turn.polls
    for state in running:
        assert state["status"] == "InProgress"
        assert [item["type"] for item in state["result"]["content"]] == ["text"]
    texts = [without_figures(state["result"]["content"][0]["value"]) for state in running]
    plain = [text for text in texts if not text.startswith("- ")]
    assert plain == [text for text in BEFORE if text in plain] == texts[: len(plain)]
    reached = [_steps_reached(text) for text in texts[len(plain) :]]
    assert reached == sorted(reached)
    assert STEPS.index(ANSWER) <= reached[-1]
    assert len(set(reached)) >= 6
    assert (last["status"], last["result"]["completion"]) == ("Completed", ANSWER)


async def test_text_is_seen_while_the_model_writes_it(journey: Journey) -> None:
    shown = [without_figures(state["result"]["content"][0]["value"]).splitlines()[-1] for state in journey.turn.polls[:-1]]
    partial = [line for line in shown if ANSWER.startswith(line) and line != ANSWER]
    assert partial
    assert partial == sorted(partial, key=len)


async def test_a_poll_after_the_end_gives_the_same_answer_for_ever(stage: Stage, journey: Journey) -> None:
    assert await stage.caller.status(journey.turn.operation_id) == journey.turn.state


async def test_events_come_in_order_and_resume_where_a_reader_left(stage: Stage, journey: Journey) -> None:
    path = f"/instances/{stage.caller.instance_id}/async-completions/{journey.turn.operation_id}/events"
    whole = _frames((await stage.caller.http.get(path)).text)
    numbers = [number for number, _ in whole if number]
    assert numbers == list(range(1, len(numbers) + 1))
    inner = [event["seq"] for _, event in whole if event.get("seq")]
    assert inner == list(range(1, len(inner) + 1))
    rest = _frames((await stage.caller.http.get(path, headers={"Last-Event-ID": str(numbers[4])})).text)
    assert rest == whole[5:]
    assert whole[-1][1] == {"type": "end", "status": "Completed"}
    assert (await stage.caller.http.get(path, headers={"Last-Event-ID": str(numbers[-1])})).status_code == 204


async def test_nobody_else_sees_anything_of_it(stage: Stage, journey: Journey) -> None:
    """Another user of the platform, even with its key, gets 404 for the state, the events and each file."""
    async with open_caller(stage.platform, "eve@example.com") as eve:
        path = f"/instances/{stage.caller.instance_id}/async-completions/{journey.turn.operation_id}"
        assert [(await eve.http.get(f"{path}/{what}")).status_code for what in ("status", "events")] == [404, 404]
        assert (await eve.http.post(path.rsplit("/", 1)[0], json=journey.body)).status_code in (404, 409)
        for artifact in journey.turn.artifacts("File"):
            with pytest.raises(NotFoundOrNotOwned):
                await eve.context.file_content(eve.identity, artifact["filepath"])


async def test_sending_a_completion_again_starts_nothing(stage: Stage, journey: Journey) -> None:
    before = len(journey.model.played.received)
    assert await stage.caller.start(journey.body) == journey.turn.operation_id
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        await stage.caller.start({**journey.body, "user_prompt": "Something else."})
    assert await stage.caller.status(journey.turn.operation_id) == journey.turn.state
    assert len(journey.model.played.received) == before


def _steps_reached(text: str) -> int:
    """Return how many of the turn's steps an answer to a poll lists; it must list exactly these, the earliest ones as a number."""
    listed = [re.sub(r"\d+ files", "N files", line[2:]).removesuffix(" (failed)") for line in text.splitlines() if line.startswith("- ")]
    hidden = re.fullmatch(r"… (\d+) earlier steps", listed[0])
    shown, earlier = (listed[1:], int(hidden[1])) if hidden else (listed, 0)
    assert shown == STEPS[earlier : earlier + len(shown)]
    return earlier + len(shown)


def _frames(stream: str) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for frame in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if ": " in line)
        if "data" in fields:
            found.append((int(fields.get("id", 0)), json.loads(fields["data"])))
    return found
