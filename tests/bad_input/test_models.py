"""Models that fail: the turn ends soon, says why in words, and gives what was done until then."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestration_service.planning import SandboxLimits
from orchestration_service.scripted.script import HttpAnswer, Step
from tests.stage import MODEL_KEY, Stage, Turn, bash, open_stage, says, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # the first test waits for all turns

WORK = bash("echo work >> work.txt")
TURN_SECONDS = 60.0  # never needed: some seconds each, on a machine where four turns at once do not wait for other tests

FAULTS: dict[str, tuple[Step, str]] = {
    "401": (Step(http=HttpAnswer(status=401)), "401"),
    "403 with the key in it": (Step(http=HttpAnswer(status=403, body=f"your key {MODEL_KEY} is blocked")), ""),
    "429 for hours": (Step(http=HttpAnswer(status=429, headers={"retry-after": "7200"})), "429"),
    "500": (Step(http=HttpAnswer(status=500)), "500"),
    "529": (Step(http=HttpAnswer(status=529)), "529"),
    "a sign-in page": (Step(malformed="html"), "no model"),
    "a cut stream": (Step(text="I was about to", malformed="cut"), "model"),
    "an error in the stream": (Step(text="I was about to", malformed="error_event"), ""),
    "nothing at all": (Step(malformed="empty"), "model"),
    "refused": (Step(text="unused"), "reached"),
}


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path_factory.mktemp("platform"), limits=SandboxLimits(max_turn_seconds=TURN_SECONDS)) as opened:
        yield opened


@pytest.fixture(scope="module")
async def turns(stage: Stage) -> dict[str, Turn]:
    """One turn for each fault, some at a time, since they mostly wait."""

    async def play(name: str) -> Turn:
        body = stage.model(WORK, FAULTS[name][0]).completion("Work.")
        if name == "refused":
            _endpoint(body)["url"] = "http://127.0.0.1:9"
        return await stage.finished(await stage.caller.start(body))

    return await together(FAULTS, play)


@pytest.mark.parametrize("name", FAULTS)
async def test_a_failing_model_ends_the_turn_in_words(stage: Stage, turns: dict[str, Turn], name: str) -> None:
    turn = turns[name]
    assert (turn.status, turn.receipt.end_reason) == ("Failed", "model_error")
    assert "The model could not be used: " in turn.answer
    assert FAULTS[name][1] in turn.answer
    assert "Traceback" not in turn.answer
    assert turn.receipt.seconds < TURN_SECONDS


@pytest.mark.parametrize("name", FAULTS)
async def test_what_was_done_before_the_fault_is_kept(stage: Stage, turns: dict[str, Turn], name: str) -> None:
    turn = turns[name]
    assert {"events", "log", "workspace", "manifest"} <= set(turn.files)
    assert turn.receipt.processes_left == 0
    if name != "refused":
        assert (await stage.archive(turn))["workspace/work.txt"] == b"work\n"
        assert turn.receipt.patch_proven


@pytest.mark.parametrize("name", FAULTS)
async def test_no_answer_shows_the_key(turns: dict[str, Turn], name: str) -> None:
    assert MODEL_KEY not in str(turns[name].polls)


async def test_a_fault_that_passes_is_not_seen(stage: Stage) -> None:
    """Overload, too many requests and broken streams are asked again; the tokens of the broken one are counted too."""
    steps = (
        Step(text="Working.", tool_use=WORK.tool_use, http=HttpAnswer(status=529), fault_times=1),
        Step(text="Still working.", tool_use=WORK.tool_use, malformed="cut", fault_times=1),
        says("Done.", http=HttpAnswer(status=429, headers={"retry-after": "1"}), fault_times=1),
    )
    turn = await stage.model(*steps).turn("Work.")
    assert (turn.status, turn.answer) == ("Completed", "Done.")
    assert (await stage.archive(turn))["workspace/work.txt"] == b"work\nwork\n"


async def test_a_wrong_key_says_whose_it_is_to_correct(stage: Stage) -> None:
    """The endpoint names a header the model does not look at, so that the key never arrives."""
    model = stage.model(says("Never."))
    body = model.completion("Work.")
    _endpoint(body)["authentication_parameters"]["api_key_header_name"] = "x-other-key"
    turn = await stage.finished(await stage.caller.start(body))
    assert turn.status == "Failed"
    assert "key" in turn.answer
    assert turn.files["manifest"]["metadata"]["integrity"] == "exact", "the service's own words are not held against the runner's"


async def test_a_tool_call_that_is_cut_off_does_no_harm(stage: Stage) -> None:
    turn = await stage.model(Step(tool_use=WORK.tool_use, malformed="bad_tool_input"), says("I see.")).turn("Work.")
    assert turn.status in ("Completed", "Failed")
    assert turn.answer.strip()
    assert "workspace/work.txt" not in await stage.archive(turn)


def _endpoint(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(resource for name, resource in body["objects"].items() if "apiEndpointConfigurations" in name)
    return found
