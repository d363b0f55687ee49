"""The agent's messages one by one, and its process from start to end, played by a small program in the CLI's place."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    ServerToolResultBlock,
    ServerToolUseBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from runner_image.agent import Agent, AgentRun, agent_environment, start_agent
from runner_image.errors import AgentError
from workflow_schemas.events import Event, Text, ToolEnd, ToolStart, Warned
from workflow_schemas.plan import Limits, TurnPlan

pytestmark = pytest.mark.anyio

SESSION = "11111111-2222-4333-8444-555555555555"


def says(text: str, **fields: Any) -> AssistantMessage:
    return AssistantMessage(content=[TextBlock(text)], model="m", message_id="msg_1", **fields)


def calls(block: Any, **fields: Any) -> AssistantMessage:
    return AssistantMessage(content=[block], model="m", message_id="msg_1", **fields)


def answers(content: Any, *, call: str = "t", is_error: bool | None = None) -> UserMessage:
    return UserMessage(content=[ToolResultBlock(tool_use_id=call, content=content, is_error=is_error)])


def result(subtype: str = "success", **fields: Any) -> ResultMessage:
    known = {"is_error": subtype != "success", "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "session_id": SESSION}
    return ResultMessage(**{"subtype": subtype, **known, **fields})


async def taken(*messages: Any) -> tuple[list[Event], AgentRun]:
    events: list[Event] = []

    async def emit(event: Event) -> None:
        events.append(event)

    agent = Agent(ClaudeSDKClient(ClaudeAgentOptions()), emit)
    for message in messages:
        await agent.take(message)
    return events, agent.run


@pytest.mark.parametrize("before", ["", "Half done."], ids=["at once", "after work"])
async def test_an_unreachable_model_is_not_the_agents_answer(before: str) -> None:
    """The CLI speaks in the model's place then, and calls the result a success; its words are the reason, not the answer."""
    words = "API Error: 529 overloaded"
    spoken = [says(before)] if before else []
    apology = AssistantMessage(content=[TextBlock(words)], model="<synthetic>", error="server_error")
    end = result(is_error=True, result=words, terminal_reason="api_error", api_error_status=529)
    events, run = await taken(*spoken, apology, end)
    assert [event.content for event in events if isinstance(event, Text)] == ([before] if before else [])
    assert (run.end_reason, run.detail, run.answer, run.session_id) == ("model_error", words, before, SESSION)
    assert run.usage.model_calls == len(spoken)


ENDS: Mapping[str, tuple[ResultMessage, str, str]] = {
    "done": (result(result="x"), "completed", ""),
    "max turns": (result("error_max_turns", terminal_reason="max_turns", num_turns=4), "max_turns", "used up its model calls"),
    "budget": (result("error_max_budget_usd", terminal_reason="budget_exhausted"), "budget", "budget"),
    "too long": (result(is_error=True, terminal_reason="prompt_too_long"), "model_error", "could not be reached"),
    "413": (result(is_error=True, terminal_reason="image_error", result="Request too large"), "model_error", "Request too large"),
    "in a tool": (result("error_during_execution", terminal_reason="aborted_tools"), "interrupted", "interrupted"),
    "in a text": (result("error_during_execution", terminal_reason="aborted_streaming"), "interrupted", "interrupted"),
    "no session": (result("error_during_execution", errors=["No conversation found"]), "agent_error", "No conversation found"),
    "of a later CLI": (result("error_of_a_new_kind"), "agent_error", "'error_of_a_new_kind'"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_each_end_has_its_reason(name: str) -> None:
    end, reason, detail = ENDS[name]
    _, run = await taken(says("Half done."), end)
    assert (run.end_reason, run.answer) == (reason, "x" if reason == "completed" else "Half done.")
    assert detail in run.detail


async def test_the_last_of_several_results_counts() -> None:
    """A task in the background has the agent go on after its first result; what was used adds up."""
    used = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": None, "cache_creation_input_tokens": -1}
    failed = result("error_max_turns", usage=used, permission_denials=[{}])
    _, run = await taken(failed, result(result="In the end.", usage=used, permission_denials=[{}]))
    assert (run.end_reason, run.detail, run.answer, run.permission_denials) == ("completed", "", "In the end.", 2)
    assert (run.usage.input_tokens, run.usage.cache_read_tokens, run.usage.output_tokens) == (10, 6, 0)


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (None, ""),
        ("done", "done"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "image", "source": {"type": "base64", "data": "aGk=" * 900}}], "[image]"),
        (["bare"], "bare"),
        ("x" * 5000, "x" * 2000),
    ],
    ids=["nothing", "text", "parts", "picture", "bare", "long"],
)
async def test_results_become_text(content: Any, output: str) -> None:
    (_, end), _ = await taken(calls(ToolUseBlock("t", "Read", {})), answers(content))
    assert isinstance(end, ToolEnd)
    assert (end.success, end.output, end.name) == (True, output, "Read")


async def test_a_failed_call_is_told_as_failed() -> None:
    (_, end), _ = await taken(calls(ToolUseBlock("t", "Bash", {})), answers("<tool_use_error>no</tool_use_error>", is_error=True))
    assert isinstance(end, ToolEnd)
    assert not end.success


async def test_tools_of_the_model_provider_are_told_too() -> None:
    """They begin and end inside of what the model says."""
    begin, end = ServerToolUseBlock("s", "web_search", {"query": "q"}), ServerToolResultBlock("s", {"type": "text", "text": "found"})
    events, _ = await taken(calls(begin), calls(end))
    assert [(event.name, event.id) for event in events if isinstance(event, ToolStart | ToolEnd)] == [("web_search", "s")] * 2
    assert isinstance(events[1], ToolEnd)
    assert events[1].output == "found"


async def test_a_subagents_calls_name_the_call_that_started_it() -> None:
    task, read = ToolUseBlock("t0", "Task", {}), ToolUseBlock("t1", "Read", {})
    events, _ = await taken(calls(task), calls(read, parent_tool_use_id="t0"), answers("read", call="t1"), answers("done", call="t0"))
    parents = [(event.id, event.parent_id) for event in events if isinstance(event, ToolStart | ToolEnd)]
    assert parents == [("t0", ""), ("t1", "t0"), ("t1", "t0"), ("t0", "")]


async def test_what_is_not_meant_for_people_is_not_told() -> None:
    """Thoughts, blanks, a subagent's words, the environment's own prompts, and an answer to a call of an earlier session."""
    events, run = await taken(
        AssistantMessage(content=[ThinkingBlock("hmm", "c2ln")], model="m", message_id="msg_1"),
        says("  \n"),
        says("I am the subagent.", parent_tool_use_id="t0"),
        UserMessage(content="[Request interrupted by user]"),
        UserMessage(content=[TextBlock("SUBTASK")], parent_tool_use_id="t0"),
        answers("late"),
        SystemMessage("informational", {"content": "x"}),
    )
    assert (events, run.answer, run.usage.model_calls) == ([], "", 1)


async def test_long_arguments_are_cut_wherever_they_are() -> None:
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"in": deep}
    arguments = {"content": "x" * 3000, "edits": [{"new": "y" * 3000, "count": 1}], "deep": deep}
    (start,), _ = await taken(calls(ToolUseBlock("t", "Write", arguments)))
    assert isinstance(start, ToolStart)
    assert start.input["content"] == f"{'x' * 2000}… (3000 characters)"
    assert start.input["edits"] == [{"new": f"{'y' * 2000}… (3000 characters)", "count": 1}]
    assert len(start.model_dump_json()) < 6000


async def test_half_a_character_can_be_written() -> None:
    events, _ = await taken(says("half \ud83d"), calls(ToolUseBlock("t", "Bash", {"command": "\udc00"})), answers("\ud83d"))
    assert [event.model_dump_json().encode() for event in events]


@pytest.mark.parametrize("data", [{}, {"error_status": "{0}", "attempt": [1]}], ids=["nothing known", "odd values"])
@pytest.mark.parametrize("subtype", ["api_retry", "model_fallback", "compact_boundary"])
async def test_warnings_need_nothing_to_be_known(subtype: str, data: dict[str, Any]) -> None:
    (event,), _ = await taken(SystemMessage(subtype, data))
    assert isinstance(event, Warned)
    assert "{" not in event.message.replace("{0}", "")


NONSENSE: Mapping[str, Any] = {
    "text is a number": AssistantMessage(content=[TextBlock(7)], model="m"),  # type: ignore[arg-type]
    "content is missing": AssistantMessage(content=None, model="m"),  # type: ignore[arg-type]
    "arguments are a list": calls(ToolUseBlock("t", "Bash", ["ls"])),  # type: ignore[arg-type]
    "id is a list": calls(ToolUseBlock([], "Bash", {})),  # type: ignore[arg-type]
    "data is text": SystemMessage("api_retry", "x"),  # type: ignore[arg-type]
    "usage is text": result(usage="many"),
}


@pytest.mark.parametrize("name", NONSENSE)
async def test_nonsense_is_an_error_of_the_agent(name: str) -> None:
    """The SDK does not check types; what makes no sense is named and never an exception nobody expects."""
    with pytest.raises(AgentError, match="makes no sense"):
        await taken(NONSENSE[name])


# From here on the agent is a process.

CLI = """
import json, sys

def say(message):
    print(json.dumps(message), flush=True)

say_after = json.loads({script!r})
open({arguments!r}, "w").write(json.dumps(sys.argv[1:]))
print("a complaint", file=sys.stderr, flush=True)
if say_after is None:
    sys.exit(3)
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "control_request":
        answer = {{"subtype": "success", "request_id": message["request_id"], "response": {{}}}}
        say({{"type": "control_response", "response": answer}})
        if message["request"]["subtype"] == "interrupt":
            say({stopped!r})
    elif message["type"] == "user":
        for step in say_after:
            if step == "die":
                sys.exit(5)
            say(step)
"""

STOPPED = {"type": "result", **vars(result("error_during_execution", terminal_reason="aborted_tools"))}
DONE = {"type": "result", **vars(result(result="Done."))}
BEGIN = {"type": "assistant", "message": {"model": "m", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}}


class Played:
    """A program that plays the CLI, and what came of it."""

    def __init__(self, folder: Path, script: Any) -> None:
        self.wrapper, self._arguments = folder / "cli", folder / "arguments.json"
        code = CLI.format(script=json.dumps(script), arguments=str(self._arguments), stopped=STOPPED)
        self.wrapper.write_text(f"#!{sys.executable} -IS\n{code}", encoding="utf-8")
        self.wrapper.chmod(0o755)
        self.events: list[Event] = []
        self.complaints: list[str] = []
        self.began = anyio.Event()

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        self.began.set()

    def start(self, resume: str | None = None) -> Any:
        return start_agent(PLAN, wrapper=self.wrapper, emit=self.emit, resume=resume, log=self.complaints.append)

    def arguments(self) -> list[str]:
        read: list[str] = json.loads(self._arguments.read_text(encoding="utf-8"))
        return read


LIMITS = Limits(soft_seconds=50, hard_seconds=60, max_turns=7, command_timeout_seconds=11, max_output_bytes=1024, max_unpacked_bytes=1024)
PLAN = TurnPlan(
    run_id="run-00000001",
    turn_number=1,
    prompt="p",
    system_prompt="Be careful.",
    model="claude-x",
    tools=("Read", "Bash"),
    limits=LIMITS,
    output_stem="turn-001",
)


async def test_an_agent_works_until_it_is_done(tmp_path: Path) -> None:
    played = Played(tmp_path, [BEGIN, DONE])
    async with played.start(resume=SESSION) as agent:
        run = await agent.work("Go.")
    assert (run.end_reason, run.answer, run.session_id) == ("completed", "Done.", SESSION)
    assert [event.type for event in played.events] == ["tool_start", "tool_end"]
    assert isinstance(played.events[1], ToolEnd)
    assert (played.events[1].success, played.events[1].output) == (False, "The agent ended before this call did.")
    given = played.arguments()
    values = {name: given[given.index(name) + 1] for name in ("--tools", "--max-turns", "--model", "--permission-mode")}
    assert list(values.values()) == ["Read,Bash", "7", "claude-x", "bypassPermissions"]
    assert {"--strict-mcp-config", "--setting-sources=", f"--resume={SESSION}"} <= set(given)


async def test_an_agent_that_is_stopped_says_why(tmp_path: Path) -> None:
    played = Played(tmp_path, [BEGIN])
    async with played.start() as agent, anyio.create_task_group() as group:
        group.start_soon(agent.work, "Go.")
        await played.began.wait()
        await agent.stop("deadline", "The time was up.")
        await agent.stop("interrupted", "Too late to be the reason.")
    assert (agent.run.end_reason, agent.run.detail) == ("deadline", "The time was up.")
    assert [event.type for event in played.events] == ["tool_start", "tool_end"]


@pytest.mark.parametrize(
    "script",
    [[BEGIN, "die"], [BEGIN, {"type": "assistant", "message": {"content": "text"}}]],
    ids=["dies", "speaks nonsense"],
)
async def test_a_process_that_fails_is_an_error_and_its_calls_end(tmp_path: Path, script: list[Any]) -> None:
    played = Played(tmp_path, script)
    async with played.start() as agent:
        with pytest.raises(AgentError, match="the agent's process failed"):
            await agent.work("Go.")
    assert [event.type for event in played.events] == ["tool_start", "tool_end"]
    assert played.complaints == ["a complaint"]


async def test_a_process_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    played = Played(tmp_path, None)
    with pytest.raises(AgentError, match="does not start"):
        async with played.start():
            raise AssertionError("it did start")
    played.wrapper.unlink()
    with pytest.raises(AgentError, match="does not start"):
        async with played.start():
            raise AssertionError("it did start")


def test_the_environment_holds_no_key_and_bounds_the_cli() -> None:
    environment = agent_environment(PLAN)
    assert environment["ANTHROPIC_API_KEY"] == "held-by-the-service"
    assert environment["BASH_DEFAULT_TIMEOUT_MS"] == environment["BASH_MAX_TIMEOUT_MS"] == "11000"
    assert int(environment["API_TIMEOUT_MS"]) > LIMITS.hard_seconds * 1000
    assert environment["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"
