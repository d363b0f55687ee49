"""Recorded messages of the agent SDK, read as the runner reads them, and told on under the names the project started from."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import claude_agent_sdk.types as sdk
import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message

from runner_image.agent import Agent
from workflow_schemas.events import Event, Progress, Text, ToolEnd, ToolStart, Warned, event_adapter
from workflow_schemas.usage import Usage

SAMPLES = Path(__file__).parent / "samples" / "claude_sdk"

pytestmark = pytest.mark.anyio

BLOCKS: Mapping[frozenset[str], type] = {
    frozenset(field.name for field in dataclasses.fields(kind)): kind
    for kind in (sdk.TextBlock, sdk.ThinkingBlock, sdk.ToolUseBlock, sdk.ToolResultBlock)
}
"""The kinds of content blocks by their fields: the dumps do not name them."""

SEED_FIELDS: Mapping[str, set[str]] = {
    "progress": {"step", "message"},
    "text": {"content"},
    "tool_start": {"name", "input"},
    "tool_end": {"name", "success"},
}
"""Events of the sandbox module the project started from, with the fields its readers look at."""


@dataclasses.dataclass(frozen=True)
class Told:
    """What a sample must become."""

    events: tuple[str, ...]
    answer: str
    calls: int
    tokens: tuple[int, int] = (100, 20)


HI = Told(("says hi",), "hi", 1)
ECHO_HI = ("1 Bash begins", "1 Bash ends: hi")
SUBAGENT = ("1 Agent begins", "2 Bash begins", "2 Bash ends: from-sub", "1 Agent ends: ", "says all finished")

TOLD: Mapping[str, Told] = {
    "atmention": Told(("says x",), "x", 1),
    "bgbash": Told(
        (
            "1 Bash begins",
            "1 Bash ends: Command running in background",
            "says started",
            "task: A task in the background ended (completed): Background command",
            "says after bg",
        ),
        "after bg",
        3,
        (300, 60),
    ),
    "fallback": Told(
        (
            "warns: The model did not answer (HTTP 529, overloaded); it is asked again, 1 of at most 10 times.",
            "warns: The model did not answer (HTTP 529, overloaded); it is asked again, 2 of at most 10 times.",
            "warns: The model claude-opus-5-5 is not available (overloaded); claude-sonnet-5-5 goes on in its place.",
            "says from fallback",
        ),
        "from fallback",
        1,
    ),
    "fallback_404": Told(
        (
            "warns: The model claude-nope is not available (model_not_found); claude-sonnet-5-5 goes on in its place.",
            "says from fallback",
        ),
        "from fallback",
        1,
    ),
    "hookevents": Told((*ECHO_HI, "says bye"), "bye", 2, (200, 40)),
    "mcp": Told(("1 mcp__tk__get_ticket begins", "1 mcp__tk__get_ticket ends: ticket 7: fix add", "says got it"), "got it", 2, (200, 40)),
    "parallel_tools": Told(
        ("1 Bash begins", "2 Bash begins", "3 Read begins", "1 Bash ends: A", "2 Bash ends: B", "3 Read ends: 1\tvm", "says x"),
        "x",
        2,  # the CLI says four "turns"
        (200, 40),
    ),
    "partial": Told(("says Hello there", *ECHO_HI, "says bye"), "bye", 2, (200, 40)),
    "ratelimit_hdr": HI,
    "slash": Told((), "", 0, (0, 0)),  # the CLI answered by itself: these are not the agent's words
    "structured": Told(
        ("1 StructuredOutput begins", "1 StructuredOutput ends: Structured output provided successfully"), '{"ok":true,"n":3}', 1
    ),
    "structured_text": Told(('says {"ok": true, "n": 3}', "says still text"), "still text", 2, (200, 40)),
    "subagent_default": Told(
        (
            "1 Agent begins",
            "1 Agent ends: Async agent launched",
            "says launched; waiting",
            "2 Bash begins",
            "2 Bash ends: from-sub",
            "task: A task in the background ended (completed): SUBREPORT ok",
            "says all finished",
        ),
        "all finished",
        5,
        (300, 60),
    ),
    "subagent_disbg": Told(SUBAGENT, "all finished", 3, (200, 40)),  # the subagent's words were not forwarded
    "subagent_fg": Told(SUBAGENT, "all finished", 4, (200, 40)),
    "system_preset": HI,
    "system_str": HI,
    "unknown_model_cost": Told(("says hi",), "hi", 1, (1000, 500)),
    "usage_cost": Told(("says hi",), "hi", 1, (24_000, 500)),
}


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLES / f"sdk_{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def rebuilt(record: dict[str, Any]) -> Message:
    """Return the SDK's own object of a dump."""
    fields = {name: value for name, value in record.items() if name not in ("t", "cls")}
    if isinstance(fields.get("content"), list):
        fields["content"] = [BLOCKS[frozenset(block)](**block) for block in fields["content"]]
    message: Message = getattr(sdk, record["cls"])(**fields)
    return message


async def follow(name: str) -> tuple[list[Event], Agent]:
    events: list[Event] = []

    async def emit(event: Event) -> None:
        events.append(event)

    agent = Agent(ClaudeSDKClient(ClaudeAgentOptions()), emit)
    for record in recorded(name):
        await agent.take(rebuilt(record))
    return events, agent


def in_words(events: list[Event]) -> list[str]:
    """Return each event in a few words, tool calls numbered by their ids."""
    numbers: dict[str, int] = {}
    lines = []
    for event in events:
        match event:
            case Text():
                lines.append(f"says {event.content}")
            case ToolStart():
                lines.append(f"{numbers.setdefault(event.id, len(numbers) + 1)} {event.name} begins")
            case ToolEnd():
                lines.append(f"{numbers[event.id]} {event.name} {'ends' if event.success else 'fails'}: {event.output}")
            case Progress():
                lines.append(f"{event.step}: {event.message}")
            case Warned():
                lines.append(f"warns: {event.message}")
            case _:
                raise AssertionError(event)
    return lines


def test_every_recording_is_told() -> None:
    assert {path.stem.removeprefix("sdk_") for path in SAMPLES.iterdir()} == set(TOLD)


@pytest.mark.parametrize("name", TOLD)
def test_dumps_are_rebuilt_without_loss(name: str) -> None:
    """What is fed to the agent says exactly what was recorded."""
    for record in recorded(name):
        assert dataclasses.asdict(rebuilt(record)) == {key: value for key, value in record.items() if key not in ("t", "cls")}


@pytest.mark.parametrize("name", TOLD)
async def test_a_recording_is_told_as_it_happened(name: str) -> None:
    """Each start has its end, nothing is told twice, and only the agent's own words are its words."""
    told = TOLD[name]
    events, agent = await follow(name)
    lines = in_words(events)
    assert len(lines) == len(told.events), lines
    assert all(line.startswith(expected) for line, expected in zip(lines, told.events, strict=True)), lines
    assert (agent.run.end_reason, agent.run.detail, agent.run.answer) == ("completed", "", told.answer)
    assert agent.run.session_id == recorded(name)[0]["data"]["session_id"]
    assert (agent.run.usage.model_calls, agent.run.usage.prompt_tokens, agent.run.usage.output_tokens) == (told.calls, *told.tokens)


async def test_tokens_of_the_cache_are_told_apart() -> None:
    _, agent = await follow("usage_cost")
    assert agent.run.usage == Usage(model_calls=1, input_tokens=1000, cache_read_tokens=20_000, cache_write_tokens=3000, output_tokens=500)


async def test_the_arguments_of_a_call_are_told() -> None:
    events, _ = await follow("parallel_tools")
    assert [event.input for event in events if isinstance(event, ToolStart)][2] == {"file_path": "/etc/hostname"}


@pytest.mark.parametrize("name", ["bgbash", "fallback", "parallel_tools"])
async def test_events_are_written_as_their_readers_know_them(name: str) -> None:
    """On the way out an event is an object with the seed's `type` and fields, and it is the same event when it is read again."""
    events, _ = await follow(name)
    for event in events:
        line = event_adapter.dump_json(event)
        written = json.loads(line)
        assert next(iter(written)) in ("seq", "type")
        assert written.keys() >= SEED_FIELDS.get(written["type"], {"message"})
        assert event_adapter.validate_json(line) == event
