"""How a turn may end, and what its user is told and keeps."""

from collections.abc import AsyncIterator

import pytest

from orchestration_service.planning import SandboxLimits
from orchestration_service.scripted.script import Step
from tests.stage import Stage, Turn, bash, calls, open_stage, says, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # the first test waits for all turns

TURN_SECONDS = 8.0


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path_factory.mktemp("platform"), limits=SandboxLimits(max_turn_seconds=TURN_SECONDS)) as opened:
        yield opened


WORK = bash("echo work >> work.txt")


async def kept(stage: Stage, turn: Turn) -> bytes:
    """What the turn's archive holds of the agent's work, after a look at what every ending owes its user."""
    assert turn.result["content"][0]["value"].strip()
    assert {"events", "log", "workspace", "manifest", "patch"} <= set(turn.files), turn.answer
    assert turn.receipt.patch_proven
    assert turn.receipt.processes_left == 0
    return (await stage.archive(turn))["workspace/work.txt"]


async def test_too_many_model_calls(stage: Stage) -> None:
    turn = await stage.model(WORK, when_over="loop").turn("Work for ever.", max_turns=3)
    assert (turn.status, turn.receipt.end_reason) == ("Completed", "max_turns")
    assert turn.answer == "The agent was stopped because it used up its model calls. Say *continue* to go on."
    assert await kept(stage, turn) == b"work\n" * 3
    assert turn.receipt.usage.model_calls == 3


async def test_too_many_tokens(stage: Stage) -> None:
    """The call that crosses the budget still counts; after it the agent is stopped."""
    spent = Step(text="Working.", tool_use=WORK.tool_use, usage={"input_tokens": 400, "output_tokens": 100})
    turn = await stage.model(spent, when_over="loop").turn("Work for ever.", max_total_tokens=1200)
    assert (turn.status, turn.receipt.end_reason) == ("Completed", "budget")
    assert turn.answer.endswith("The agent was stopped because the token budget was spent.")
    assert turn.result["total_tokens"] == 1500
    assert (await kept(stage, turn)).startswith(b"work\n")


ENDLESS: dict[str, Step] = {
    "a command that outlives the turn": bash("sleep 300"),
    "a model that never answers": Step(stall="before_first_byte"),
    "a model that falls silent": Step(text="I was about to say " * 20, stall="mid_stream"),
}


@pytest.fixture(scope="module")
async def overtime(stage: Stage) -> dict[str, Turn]:
    return await together(ENDLESS, lambda name: stage.model(WORK, ENDLESS[name], says("Never.")).turn("Work."))


@pytest.mark.parametrize("name", ENDLESS)
async def test_the_deadline_ends_what_does_not_end(stage: Stage, overtime: dict[str, Turn], name: str) -> None:
    turn = overtime[name]
    assert (turn.status, turn.receipt.end_reason) == ("Completed", "deadline")
    assert turn.answer.endswith("The agent was stopped because the time was up. Say *continue* to go on.")
    assert turn.receipt.seconds < TURN_SECONDS + 30, turn.receipt.steps
    assert await kept(stage, turn) == b"work\n"
    events = [event async for event in stage.caller.events(turn.operation_id)]
    warnings = [event["message"] for event in events if event["type"] == "warning"]
    assert warnings == ["The time is nearly up: the agent was told to wrap up within 1 s."]


async def test_a_command_is_stopped_after_its_own_limit(stage: Stage) -> None:
    """And the agent goes on."""
    turn = await stage.model(WORK, bash("sleep 60"), says("It took too long.")).turn("Sleep.", command_timeout_seconds=1)
    assert (turn.status, turn.answer, turn.receipt.end_reason) == ("Completed", "It took too long.", "completed")
    ends = [event async for event in stage.caller.events(turn.operation_id) if event["type"] == "tool_end"]
    assert [end["success"] for end in ends] == [True, False]
    assert await kept(stage, turn) == b"work\n"


async def test_an_agent_that_says_nothing(stage: Stage) -> None:
    turn = await stage.model(WORK, Step(thinking="Done, I think.")).turn("Work.")
    assert turn.status == "Completed"
    assert turn.answer.strip()
    assert await kept(stage, turn) == b"work\n"


async def test_a_refusal_of_the_model_is_an_answer(stage: Stage) -> None:
    turn = await stage.model(WORK, says("I cannot help with that.", stop_reason="refusal")).turn("Do evil.")
    assert turn.result["completion"].strip()
    assert await kept(stage, turn) == b"work\n"


async def test_tools_the_administrator_took_away_are_not_there(stage: Stage) -> None:
    model = stage.model(WORK, says("I have no shell."))
    turn = await model.turn("Work.", allowed_tools="Read,Grep")
    assert turn.answer == "I have no shell."
    assert {tool["name"] for tool in model.played.received[0].body["tools"]} <= {"Read", "Grep", "DeferredToolPlaceholder"}
    assert "workspace/work.txt" not in await stage.archive(turn)


async def test_a_tool_that_does_not_exist_is_refused_and_the_agent_goes_on(stage: Stage) -> None:
    tools = ("WebFetch", {"url": "https://example.com", "prompt": "x"}), ("WebSearch", {"query": "x"}), ("Task", {"prompt": "x"})
    turn = await stage.model(calls(*tools), says("None of them.")).turn("Browse.")
    assert turn.answer == "None of them."
    ends = [event async for event in stage.caller.events(turn.operation_id) if event["type"] == "tool_end"]
    assert [end["success"] for end in ends] == [False] * 3
