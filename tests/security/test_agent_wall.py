"""What hostile code finds that runs as a shell command of the agent, or through the agent's own tools.

What every wall keeps is asked in each place; what only namespaces give, in the local sandbox (workflow_schemas.walls, docs/walls.md).
"""

import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from tests.security.conftest import CONFIG, LEVELS
from tests.stage import MODEL_KEY, Stage, Turn, bash, calls, packed, says
from workflow_schemas.mailbox import Exchange, encode
from workflow_schemas.manifest import RunManifest
from workflow_schemas.walls import GUARDS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # the first one to ask for a container builds its image

OTHERS = "the-other-user-keeps-this-9c41f7"
CANARY = "what-the-probe-must-find-33e0a1"
PROBE = Path(__file__).with_name("probe.py")
HERE = "probed"
"""The conversation, and so the sandbox, that all turns here share."""

only_namespaces = pytest.mark.parametrize("place", ["local"], indirect=True)
only_landlock = pytest.mark.parametrize("place", ["container"], indirect=True)


@pytest.fixture(scope="module")
async def generation(stage: Stage) -> str:
    """A word of the runner's: in its memory, its files and its store, and never told to the agent."""
    turn = await stage.model(says("Ready.")).turn("Get ready.", conversation=HERE)
    assert turn.status == "Completed", turn.answer
    return RunManifest.model_validate_json(await stage.content(turn.files["manifest"])).generation


@pytest.fixture(scope="module")
async def findings(stage: Stage, generation: str) -> dict[str, Any]:
    """One turn that looks into every corner, while another conversation's sandbox is alive beside it."""
    since = time.time() - 2
    neighbour = stage.model(bash(f"echo {OTHERS} > /workspace/diary; cp diary /outputs/diary.txt"), says("Written."))
    assert (await neighbour.turn("Write a diary.")).status == "Completed"
    ports = [urlsplit(url).port for url in (stage.platform.base_url, stage.models_url)]
    needles = [text[::-1] for text in (CANARY, MODEL_KEY, stage.platform.api_key, OTHERS, stage.caller.identity.upn, generation)]
    seeds = "read -r SEED < seed.txt; export SEED; sleep 900 &"  # the probe must find what is in a file, an environment, and a memory
    asked = encode(Exchange(run_id="run-12345678")).encode()
    frame = (len(asked).to_bytes(4, "big") + asked).hex()
    command = f"{seeds} python3 probe.py '{json.dumps(needles)}' '{json.dumps(ports)}' {since} {frame}; true"
    record = await stage.caller.upload(HERE, "probe.tar", packed({"probe.py": PROBE.read_bytes(), "seed.txt": f"{CANARY}\n"}))
    model = stage.model(bash(command), bash("cat findings.json | head -c 100"), says("Looked."), stepping="by_turn")
    turn = await model.turn("Look.", [record], conversation=HERE, command_timeout_seconds=280)
    assert turn.status == "Completed", turn.answer
    found: dict[str, Any] = json.loads((await stage.archive(turn))["workspace/findings.json"])
    found["turn"] = turn
    return found


@pytest.mark.parametrize(
    "question",
    [
        "routes",
        "resolved_names",
        "reached_addresses",
        "unlimited_places",
        "own_namespaces",
    ],
)
async def test_a_command_finds_nothing(findings: dict[str, Any], question: str) -> None:
    assert findings[question] == []


@pytest.mark.parametrize("question", ["opened_places", "written_places", "changed_files"])
async def test_a_command_finds_only_what_is_its_own(findings: dict[str, Any], question: str) -> None:
    """What is its own is among the things asked for, so that the question proves itself."""
    assert findings[question] == ["/workspace/probe.py" if question == "changed_files" else "/workspace"]


@only_namespaces
async def test_what_is_outside_does_not_exist(findings: dict[str, Any]) -> None:
    assert (findings["abstract_sockets"], findings["existing_places"]) == ([], ["/workspace"])


@pytest.mark.parametrize("place_of_needle", ["files", "environments", "memory"])
async def test_no_secret_is_in_sight(findings: dict[str, Any], place_of_needle: str) -> None:
    """Of all the needles only the first is found, which was put there so that the search proves itself."""
    assert findings[f"needles_in_{place_of_needle}"] == [0]


async def test_only_its_own_sockets_answer_a_command(findings: dict[str, Any]) -> None:
    """Neither the runner's, nor the server's, nor the model's."""
    assert findings["answering_sockets"] == ["/workspace/own.sock"]


@only_namespaces
async def test_a_command_can_connect_to_its_own_sockets_only(findings: dict[str, Any]) -> None:
    assert findings["connected_sockets"] == ["/workspace/own.sock"]


async def test_the_only_interface_is_loopback(findings: dict[str, Any]) -> None:
    assert findings["interfaces"] == ["lo"]


async def test_the_root_is_read_only(findings: dict[str, Any]) -> None:
    assert findings["root_file_system"] == "ro"


OWN_PROCESSES = ("/opt/agent/bin/bwrap ", "/bin/bash -c", "sleep 900")


async def test_a_command_signals_only_its_own_processes(findings: dict[str, Any]) -> None:
    """Neither the CLI, nor the runner, nor the server; the command's own sleep is there to be found."""
    assert any(line.startswith("sleep 900") for line in findings["signalled"])
    assert [line for line in findings["signalled"] if not line.startswith(OWN_PROCESSES)] == []


@only_namespaces
async def test_a_command_sees_only_its_own_processes(findings: dict[str, Any]) -> None:
    """Neither the CLI, nor the runner, nor the server, nor anything of the host."""
    assert [line for line in findings["processes"] if not line.startswith(OWN_PROCESSES)] == []


async def test_a_command_has_no_rights(findings: dict[str, Any]) -> None:
    rights = findings["rights"]
    assert {int(rights[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0}
    assert (rights["NoNewPrivs"], rights["Uid"] == "0") == ("1", False)


@pytest.mark.parametrize("name", ["ipc", "mnt", "net", "pid", "uts"])
def test_a_command_shares_no_namespace_with_the_host(findings: dict[str, Any], name: str) -> None:
    assert findings["namespaces"][name] != str(Path(f"/proc/self/ns/{name}").readlink())


@only_namespaces
def test_a_command_shares_no_user_ids_with_the_host(findings: dict[str, Any]) -> None:
    assert findings["namespaces"]["user"] != str(Path("/proc/self/ns/user").readlink())


@only_namespaces
async def test_only_the_agents_empty_home_exists(findings: dict[str, Any]) -> None:
    assert findings["homes"] == ["agent"]


@only_namespaces
async def test_temporary_files_end_with_their_turn(stage: Stage, findings: dict[str, Any]) -> None:
    assert len(findings["left_behind"]) == 2
    look = bash(f"cat {' '.join(findings['left_behind'])} > seen.txt 2> /dev/null; true")
    turn = await stage.model(look, says("Looked again."), stepping="by_turn").turn("Look again.", conversation=HERE)
    assert (await stage.archive(turn))["workspace/seen.txt"] == b""


async def test_no_event_can_be_forged(stage: Stage, findings: dict[str, Any]) -> None:
    """Whatever a command writes into the descriptors it can open, no event and no answer comes of it."""
    turn = findings["turn"]
    events = [event async for event in stage.caller.events(turn.operation_id)]
    spoken = [event for event in events if event["type"] == "text"]
    assert [event["content"] for event in spoken] == ["Looked."]
    assert "FORGED-EVENT" not in json.dumps(turn.state)


async def test_the_environment_tells_no_address_and_no_key(findings: dict[str, Any]) -> None:
    names = [name for name in findings["variables"] if "KEY" in name or "TOKEN" in name or "SOCKET" in name or "URL" in name]
    assert names == []


def test_the_user_is_told_which_wall_stood(findings: dict[str, Any], place: str) -> None:
    """The receipt names what these tests have found kept, and what was demanded."""
    turn: Turn = findings["turn"]
    wall, level = turn.receipt.wall, LEVELS[place]
    assert wall is not None
    assert (wall.level, wall.guards, turn.receipt.minimum_wall) == (level, tuple(GUARDS[level]), level)
    assert bool(wall.why_not_stronger) == (level != "namespaces")
    assert f"*wall between agent and runner: {wall.in_words()}*" in turn.result["content"][0]["value"]


@only_landlock
async def test_a_stronger_wall_than_there_is_is_refused(stage: Stage, generation: str) -> None:
    """Nothing is executed, the user is told what to do, and the conversation goes on where it was."""
    model = stage.model(bash("echo ran > ran.txt"), says("Never."), stepping="by_turn")
    turn = await model.turn("Work.", conversation=HERE, minimum_wall="namespaces")
    assert (turn.status, turn.receipt.end_reason, turn.receipt.minimum_wall) == ("Failed", "refused", "namespaces")
    said = (
        "level 'namespaces'",
        "level 'landlock'",
        "bubblewrap does not start",
        "Nothing was executed",
        "'minimum_wall'",
        "docs/walls.md",
    )
    assert [words for words in said if words not in turn.answer] == []
    assert not model.played.received
    assert {role: file["metadata"]["integrity"] for role, file in turn.files.items()} == dict.fromkeys(
        ("events", "log", "manifest"), "exact"
    )
    after = await stage.model(says("On."), stepping="by_turn").turn("Go on.", conversation=HERE)
    assert "workspace/ran.txt" not in await stage.archive(after)
    assert (after.answer, after.receipt.began.workspace, after.receipt.began.memory) == ("On.", "continued", "session")


async def test_daemons_end_with_their_command(stage: Stage) -> None:
    """A command cannot leave anything behind, however it detaches itself; the host agrees."""
    mark = f"8641{os.getpid() % 1000}"
    sleep = f"nohup sleep {mark} >/dev/null 2>&1 &"
    count = "(cat /proc/[0-9]*/comm | grep -cx sleep || true)"  # a minimal machine has no pgrep
    begun = f"n=0; until [ $( {count} ) -ge 2 ] || [ $((n += 1)) -gt 200 ]; do sleep 0.05; done"
    start = f"(setsid {sleep}) ; {sleep} disown -a; {begun}; {count} > started.txt"
    model = stage.model(bash(start), bash(f"{count} > left.txt"), bash(start), says("Done."), stepping="by_turn")
    turn = await model.turn("Leave something running.", conversation=HERE)
    files = await stage.archive(turn)
    assert (files["workspace/started.txt"].strip(), files["workspace/left.txt"].strip()) == (b"2", b"0")
    assert turn.receipt.processes_left == 0
    lines = await anyio.to_thread.run_sync(_command_lines)
    assert [line for line in lines if f"sleep\0{mark}" in line] == []


SECRET_PLACES = (
    "/run/claude-code/mailbox.sqlite",
    "/run/claude-code/generation",
    "/run/claude-code/runner.lock",
    "/run/claude-code/relay/model.sock",
    "/run/claude-code/server.sock",
    "/run/model/model.sock",
    "/mnt/data/turn-001-manifest.json",
    "/etc/shadow",
    "/proc/1/environ",
    "/proc/self/environ",
    "/proc/2/environ",
    "/proc/1/root/etc/shadow",
    str(Path.home() / ".bashrc"),
    "/workspace/out/shadow",
)


async def test_the_agents_own_tools_do_not_reach_the_runner(stage: Stage, place: str) -> None:
    """Read, Grep and Glob run in the CLI's process, which is behind the outer wall but not inside a command's."""
    reads = calls(*(("Read", {"file_path": place}) for place in SECRET_PLACES))
    search = calls(
        ("Grep", {"pattern": "held-by|sk-ant|API_KEY", "path": "/proc/self", "output_mode": "content"}),
        ("Grep", {"pattern": MODEL_KEY[:12], "path": CONFIG[place], "output_mode": "content"}),
        ("Glob", {"pattern": "**/*", "path": "/run"}),
        ("Glob", {"pattern": "**/mailbox*", "path": "/"}),
    )
    model = stage.model(bash("ln -s /etc out"), reads, search, says("Tried."), stepping="by_turn")
    turn = await model.turn("Read.", conversation=HERE)
    ends = [event async for event in stage.caller.events(turn.operation_id) if event["type"] == "tool_end"]
    assert [(place, end["success"]) for place, end in zip(SECRET_PLACES, ends[1:], strict=False)] == [(p, False) for p in SECRET_PLACES]
    heard = model.prompts(-1).replace(MODEL_KEY[:12] + '", "path"', "")
    assert "held-by-the-service" not in heard
    assert MODEL_KEY not in heard
    assert all("mailbox.sqlite" not in end["output"].removeprefix("File does not exist") for end in ends[len(SECRET_PLACES) + 1 :])


UNWRITABLE = (
    "/run/claude-code/x /run/claude-code/shell /mnt/data/x.json /etc/passwd /opt/agent/shell /opt/agent/bin/x /usr/bin/x /root/x "
    "/proc/1/mem"
).split()


async def test_the_agents_own_tools_do_not_write_outside_its_places(stage: Stage) -> None:
    model = stage.model(
        calls(*(("Write", {"file_path": place, "content": "owned"}) for place in UNWRITABLE)), says("Tried."), stepping="by_turn"
    )
    turn = await model.turn("Write.", conversation=HERE)
    ends = [event async for event in stage.caller.events(turn.operation_id) if event["type"] == "tool_end"]
    assert len(ends) == len(UNWRITABLE)
    assert [place for place, end in zip(UNWRITABLE, ends, strict=True) if end["success"]] == []
    assert set(turn.files) == {"events", "log", "workspace", "seal", "manifest"}


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found
