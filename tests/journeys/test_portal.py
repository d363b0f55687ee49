"""What a polling portal sees of a turn: the exact sequence of answers, each asked for while the turn stands still."""

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from tests.journeys.turnstile import LONGEST_WAIT_SECONDS, HeldModel, Turnstile, held_context
from tests.stage import Stage, bash, calls, open_stage, packed, says

pytestmark = pytest.mark.anyio

ANSWER = "Corrected the greeting in app.py."
USAGE = {"input_tokens": 100, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 7}
STEPS = (
    calls(("Read", {"file_path": "/workspace/app.py"}), text="First the code.", usage=USAGE),
    calls(("Grep", {"pattern": "helo", "path": "/workspace"}), ("Glob", {"pattern": "**/*.py"}), usage=USAGE),
    calls(("Edit", {"file_path": "/workspace/app.py", "old_string": "helo", "new_string": "hello"}), text="A slip.", usage=USAGE),
    bash("exit 3", usage=USAGE),
    says(ANSWER, usage=USAGE, chunk_delay_seconds=0.01),
)
BEGINNING = ["Putting the files into the workspace.", "repo.tar: 1 files unpacked into /workspace", "The agent is at work."]
READ = ["First the code.", "`Read /workspace/app.py`"]
SEARCHED = ["`Grep helo`", "`Glob **/*.py`"]
EDITED = ["A slip.", "`Edit /workspace/app.py`"]
RAN = ["`Bash exit 3` (failed)"]
ENDED = [ANSWER, "Sealing the outputs.", "Collecting the files."]
SEEN: tuple[tuple[str, list[str], str, int], ...] = (
    ("model call 1", BEGINNING, "", 0),
    ("model call 2", BEGINNING + READ, "", 1),
    ("model call 3", BEGINNING + READ + SEARCHED, "", 2),
    ("model call 4", BEGINNING + READ + SEARCHED + EDITED, "", 3),
    ("model call 5", BEGINNING + READ + SEARCHED + EDITED + RAN, "", 4),
    ("half an answer", BEGINNING + READ + SEARCHED + EDITED + RAN, "Corrected", 4),
    ("collecting", BEGINNING + READ + SEARCHED + EDITED + RAN + ENDED, "", 5),
)
"""Moments of the turn, and for each what a poll shows: the steps so far, the text being written, the model calls that are counted."""
SHOWN_STEPS = 12
ACCEPTED = {"status": "InProgress", "status_message": "The operation is being processed by ClaudeCode.", "upn": "ann@example.com"}


class Portal:
    """Polls an operation whenever it is told to, and remembers all it has seen."""

    def __init__(self, stage: Stage, operation_id: str) -> None:
        self.answers: list[dict[str, Any]] = []
        self._stage = stage
        self._operation_id = operation_id

    async def poll(self) -> dict[str, Any]:
        answer = _without_clock(await self._stage.caller.status(self._operation_id))
        if not self.answers or self.answers[-1] != answer:
            self.answers.append(answer)
        return answer

    async def settle(self, expected: dict[str, Any]) -> None:
        """Poll until the news on its way has arrived; whoever waits in vain is told what was seen instead."""
        with anyio.move_on_after(LONGEST_WAIT_SECONDS):
            while await self.poll() != expected:
                await anyio.sleep(0.02)
        assert await self.poll() == expected


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[tuple[Stage, Stage, Turnstile, str]]:
    """The platform, a service beside it that reaches it through the turnstile, and the address of a model behind it too."""
    turnstile = Turnstile()
    script = ScriptedModel(Script(name="portal", steps=STEPS, delta_chars=9))
    model = Starlette(routes=[Mount("/model", HeldModel(script, turnstile, last_call=len(STEPS), half=b"Corrected"))])
    async with serve(model) as endpoint, open_stage(tmp_path / "platform") as platform:
        async with held_context(platform.platform.base_url, turnstile) as context:
            known: dict[str, Any] = {"instance_id": platform.platform.instance_id, "context_url": f"{context}/context/"}
            async with open_stage(tmp_path / "service", context_api_key=platform.platform.api_key, **known) as service:
                yield platform, service, turnstile, f"{endpoint.base_url}/model"


async def test_a_portal_sees_exactly_these_answers(held: tuple[Stage, Stage, Turnstile, str]) -> None:
    """From the acceptance over each step to the result. What is seen between two moments are earlier forms of the later one."""
    platform, service, turnstile, model = held
    record = await platform.caller.upload("portal", "repo.tar", packed({"repo/app.py": 'print("helo")\n'}))
    body = _completion(service, record, model)
    accepted = (await service.caller.http.post(f"/instances/{service.caller.instance_id}/async-completions", json=body)).json()
    operation_id = accepted["operation_id"]
    answer = _answers(operation_id)
    assert _without_clock(accepted) == ACCEPTED | {"operation_id": operation_id}
    portal = Portal(service, operation_id)
    async with turnstile.holding("opening"):
        await portal.settle(answer("Opening a sandbox."))
    at: list[int] = []
    for moment, steps, writing, counted in SEEN:
        async with turnstile.holding(moment):
            await portal.settle(answer(_text(steps, writing, counted), counted))
            at.append(len(portal.answers))
    last = await _ended(portal)
    assert (last["status"], last["result"]["completion"]) == ("Completed", ANSWER)
    assert [item["type"] for item in last["result"]["content"]] == ["text"]
    assert last["result"]["content"][0]["value"].startswith(ANSWER)
    _between_are_earlier_forms(portal.answers[:-1], at)


def _between_are_earlier_forms(answers: list[dict[str, Any]], at: list[int]) -> None:
    """Each answer seen on the way lists steps that the next moment lists too, and no fewer than the answer before."""
    reached = 0
    for number, answer in enumerate(answers):
        lines = _listed(answer)
        moment = next((SEEN[index][1] for index, end in enumerate(at) if number < end), SEEN[-1][1])
        assert [line.removesuffix(" (failed)") for line in moment[: len(lines)]] == [line.removesuffix(" (failed)") for line in lines]
        assert len(lines) >= reached
        reached = len(lines)


def _listed(answer: dict[str, Any]) -> list[str]:
    """The steps an answer lists; those it only counts stand for themselves."""
    lines = [line[2:] for line in answer["result"]["content"][0]["value"].splitlines() if line.startswith("- ")]
    hidden = re.fullmatch(r"… (\d+) earlier steps", lines[0]) if lines else None
    return [*SEEN[-1][1][: int(hidden[1])], *lines[1:]] if hidden else lines


def _text(steps: list[str], writing: str, counted: int) -> str:
    hidden = max(0, len(steps) - SHOWN_STEPS)
    lines = [f"- … {hidden} earlier steps"] if hidden else []
    lines += [f"- {step}" for step in steps[hidden:]]
    if writing:
        lines += ["", writing]
    return "\n".join([*lines, "", f"_N s · {counted} model calls · {130 * counted} tokens_"])


def _answers(operation_id: str) -> Callable[..., dict[str, Any]]:
    """How a poll is answered while the turn runs, the text and the number of counted model calls being what changes."""

    def answer(text: str, counted: int = 0) -> dict[str, Any]:
        tokens = {"prompt_tokens": 123 * counted, "completion_tokens": 7 * counted, "total_cost": 0.0, "total_tokens": 130 * counted}
        item = {"type": "text", "agent_capability_category": "FoundationaLLM.KnowledgeManagement", "annotations": [], "value": text}
        known = {"id": f"{operation_id}-result", "operation_id": operation_id, "user_prompt": ""}
        result = {**known, "completion": text, "content": [item], **tokens}
        state = {"operation_id": operation_id, "status": "InProgress", "status_message": text, "upn": "ann@example.com", "result": result}
        return {**state, "prompt_tokens": 123 * counted} if counted else state

    return answer


def _completion(service: Stage, record: Any, model: str) -> dict[str, Any]:
    body = service.caller.completion("portal", "Correct the greeting.", [record], model="scripted-model")
    next(found for name, found in body["objects"].items() if "apiEndpointConfigurations" in name)["url"] = model
    return body


async def _ended(portal: Portal) -> dict[str, Any]:
    with anyio.fail_after(LONGEST_WAIT_SECONDS):
        while (answer := await portal.poll())["status"] == "InProgress":
            await anyio.sleep(0.02)
    return answer


def _without_clock(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the time of its making and the seconds it counts."""
    text = re.sub(r"_[0-9]+ s ·", "_N s ·", json.dumps(answer, ensure_ascii=False))
    return {name: value for name, value in json.loads(text).items() if name != "last_updated"}
