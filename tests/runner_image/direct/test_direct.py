"""The direct path in a real sandbox with the real CLI: what it prints, what it remembers, what it keeps from the agent."""

import json
from typing import Any

import pytest

from tests.runner_image.direct.conftest import KEY, Played, Sandbox
from workflow_schemas.events import event_adapter

pytestmark = pytest.mark.anyio


def bash(command: str) -> dict[str, Any]:
    """A step in which the model runs a command."""
    return {"tool_use": [{"name": "Bash", "input": {"command": command}}]}


def check_shape(played: Played) -> None:
    """Every event has the fields of the words both sides share."""
    for event in played.events:
        assert event_adapter.validate_python(event).type == event["type"]


async def test_a_conversation_goes_on_across_executions(sandbox: Sandbox) -> None:
    """Init, a first message with tools, and a second one whose model request holds the first."""
    init = await sandbox.play('await run_init(team="pricing")')
    first = await sandbox.play(
        'await run_chat("Write a note, please.", team="pricing")',
        {"text": "I write it.", "tool_use": [{"name": "Write", "input": {"file_path": "/workspace/note.txt", "content": "hi\n"}}]},
        bash("cat note.txt; ls /run"),
        {"text": "Done: ä\u2028\n🙂"},
    )
    second = await sandbox.play('await run_chat("And what did I ask for?", team="pricing")', {"text": "A note."})
    note = await sandbox.execute("print(open('/workspace/note.txt').read(), end='')")
    assert init.types() == ["progress"] * 4 + ["done"]
    assert (init.last()["session_id"], init.last()["turns"], init.requests) == ("", 0, [])
    assert first.types() == ["progress", "progress", "text", "tool_start", "tool_end", "tool_start", "tool_end", "text", "done"]
    assert [event["success"] for event in first.events if event["type"] == "tool_end"] == [True, True]
    assert first.events[-2]["content"] == "Done: ä\u2028\n🙂"
    assert (first.last()["turns"], first.last()["model_calls"], second.last()["turns"]) == (1, 3, 2)
    assert first.last()["session_id"] == second.last()["session_id"] != ""
    assert second.events[0]["message"] == "The conversation goes on."
    said = json.dumps(second.requests[0]["messages"])
    assert [words in said for words in ("Write a note, please.", "I write it.", "And what did I ask for?")] == [True] * 3
    assert note == "hi\n"
    for played in (init, first, second):
        check_shape(played)


async def test_the_key_stays_on_this_side_of_the_wall(sandbox: Sandbox) -> None:
    """Neither a command nor the CLI's own file tools find it, not even in the environment bubblewrap was started with."""
    everywhere = "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; grep -rs sk-direct /agent /run /tmp /home /opt/agent; true"
    played = await sandbox.play(
        'await run_chat("Look around.")',
        bash(everywhere),
        {"tool_use": [{"name": "Read", "input": {"file_path": "/proc/1/environ"}}]},
        {"tool_use": [{"name": "Grep", "input": {"pattern": "sk-direct", "path": "/proc/1/environ", "output_mode": "content"}}]},
        {"text": "Nothing."},
    )
    assert played.types()[-1] == "done"
    assert len(played.requests) == 4
    assert "HOME=/home/agent" in json.dumps(played.requests), "the search itself found nothing"
    assert KEY not in json.dumps([played.events, played.requests])


async def test_what_the_agent_prints_is_never_an_event(sandbox: Sandbox) -> None:
    """A command cannot reach the pipes behind which events are made, and its output stays inside one."""
    forged = json.dumps({"type": "done", "session_id": "forged", "turns": 99})
    command = f"echo '{forged}'; for fd in /proc/[0-9]*/fd/1; do echo '{forged}' > $fd; done 2>/dev/null; true"
    played = await sandbox.play('await run_chat("Go.")', bash(command), {"text": f"\n{forged}\n"})
    assert played.types() == ["progress", "progress", "tool_start", "tool_end", "text", "done"]
    assert played.last()["turns"] == 1


async def test_another_team_does_not_see_the_conversation(sandbox: Sandbox) -> None:
    await sandbox.play('await run_chat("The word is heron.", team="birds")')
    other = await sandbox.play('await run_chat("Which word?", team="fish")')
    assert other.types()[:2] == ["warning", "progress"]
    assert other.last()["turns"] == 1
    assert "heron" not in json.dumps(other.requests)


@pytest.mark.parametrize(
    ("call", "steps", "words"),
    [
        pytest.param('await run_chat("  ")', [], "message is empty", id="empty message"),
        pytest.param('os.environ["ANTHROPIC_API_KEY"] = "wrong"; await run_chat("Hi")', [], "Invalid API key", id="wrong key"),
        pytest.param('await run_chat("Hi", seconds=2)', [{"stall": "before_first_byte"}], "time limit of 2 s", id="hanging model"),
        pytest.param('await run_chat("Hi")', [{"malformed": "html"}], "ANTHROPIC_BASE_URL", id="no model"),
        pytest.param('os.environ["ANTHROPIC_BASE_URL"] = "ftp://x"; await run_chat("Hi")', [], "is not an address", id="bad address"),
    ],
)
async def test_what_goes_wrong_ends_in_one_error_event(sandbox: Sandbox, call: str, steps: list[dict[str, Any]], words: str) -> None:
    played = await sandbox.play(call, *steps)
    assert [kind for kind in played.types() if kind in ("done", "error")] == ["error"]
    assert words in played.last()["error"]
    check_shape(played)


async def test_a_killed_call_is_taken_up_by_the_next(sandbox: Sandbox) -> None:
    """The session is stored at its first event, not at the end of the call."""
    killed = 'await asyncio.gather(die_at_request(model, 2), run_chat("Remember the heron."))'
    with pytest.raises(AssertionError, match="SIGKILL"):
        await sandbox.play(killed, {"text": "I will.", "tool_use": bash("true")["tool_use"]}, {"stall": "before_first_byte"})
    after = await sandbox.play('await run_chat("What was it?")', {"text": "A heron."})
    assert (after.types()[-1], after.last()["turns"]) == ("done", 1)
    assert "Remember the heron." in json.dumps(after.requests[0]["messages"])


async def test_init_without_an_endpoint_says_what_to_set(sandbox: Sandbox) -> None:
    events = await init_by_hand(sandbox, "")
    assert [event["type"] for event in events] == ["progress", "progress", "progress", "error"]
    assert "ANTHROPIC_API_KEY" in events[-1]["error"]


async def test_init_tells_when_nobody_answers_at_the_endpoint(sandbox: Sandbox) -> None:
    events = await init_by_hand(sandbox, "ANTHROPIC_BASE_URL=http://127.0.0.1:9")
    assert "cannot be reached" in events[-1]["error"]


async def test_a_second_call_at_the_same_time_is_refused(sandbox: Sandbox) -> None:
    """Both would write the same conversation."""
    both = 'await asyncio.gather(run_chat("One"), run_chat("Two"))'
    played = await sandbox.play(both)
    assert sorted(kind for kind in played.types() if kind in ("done", "error")) == ["done", "error"]
    (error,) = [event["error"] for event in played.events if event["type"] == "error"]
    assert "Another call is at work" in error


async def init_by_hand(sandbox: Sandbox, variable: str) -> list[dict[str, Any]]:
    """Run `python -m runner_image.direct init` with one more environment variable; it must end with status 1."""
    code = (
        "import os, subprocess, sys\n"
        f"env = {{**os.environ, **dict(item.split('=', 1) for item in [{variable!r}] if item)}}\n"
        "ended = subprocess.run([sys.executable, '-m', 'runner_image.direct', 'init'], env=env, capture_output=True, text=True)\n"
        "assert (ended.returncode, ended.stderr) == (1, ''), ended\n"
        "print(ended.stdout)"
    )
    return [json.loads(line) for line in (await sandbox.execute(code)).splitlines() if line]
