"""Completions that make no sense: refused at the door where the sender is a program, answered in words where the user reads it."""

import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.stage import Stage, open_stage, says

pytestmark = pytest.mark.anyio

Spoil = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path_factory.mktemp("platform")) as opened:
        yield opened


def unknown_workflow(body: dict[str, Any]) -> None:
    body["agent"]["workflow"]["type"] = "azure-openai-assistants-workflow"


def no_workflow(body: dict[str, Any]) -> None:
    del body["agent"]["workflow"]


def no_model(body: dict[str, Any]) -> None:
    references = body["agent"]["workflow"]["resource_object_ids"]
    del references[next(name for name in references if "aiModels" in name)]


def no_prompt(body: dict[str, Any]) -> None:
    references = body["agent"]["workflow"]["resource_object_ids"]
    del references[next(name for name in references if "prompts" in name)]


def model_not_sent(body: dict[str, Any]) -> None:
    del body["objects"][next(name for name in body["objects"] if "aiModels" in name)]


def no_endpoint(body: dict[str, Any]) -> None:
    del body["objects"][next(name for name in body["objects"] if "apiEndpoint" in name)]


def foreign_provider(body: dict[str, Any]) -> None:
    _endpoint(body)["provider"] = "microsoft"


def address_that_is_none(body: dict[str, Any]) -> None:
    _endpoint(body)["url"] = "file:///etc/passwd"


def empty_message(body: dict[str, Any]) -> None:
    body["user_prompt"] = " \n\t"


def file_that_is_not_there(body: dict[str, Any]) -> None:
    body["file_history"] = [
        {
            "order": 1,
            "current_message_attachment": True,
            "original_file_name": "gone.tar",
            "object_id": "x",
            "file_path": "",
            "content_type": "",
        }
    ]


UNANSWERABLE: tuple[tuple[Spoil, str], ...] = (
    (unknown_workflow, "azure-openai-assistants-workflow"),
    (no_workflow, "external-agent-workflow"),
    (no_model, "main_model"),
    (no_prompt, "main_prompt"),
    (model_not_sent, "ClaudeCodeModel"),
    (no_endpoint, "AnthropicAPI"),
    (foreign_provider, "microsoft"),
    (address_that_is_none, "AnthropicAPI"),
    (empty_message, "message is empty"),
    (file_that_is_not_there, "gone.tar"),
)


@pytest.mark.parametrize(("spoil", "named"), UNANSWERABLE, ids=[spoil.__name__ for spoil, _ in UNANSWERABLE])
async def test_what_cannot_be_done_is_accepted_and_explained(stage: Stage, spoil: Spoil, named: str) -> None:
    """The platform shows a refused POST as a bare number, so the reason comes as the answer."""
    model = stage.model(says("Never."))
    body = model.completion("Work.")
    spoil(body)
    turn = await stage.finished(await stage.caller.start(body))
    assert turn.status == "Failed"
    assert named in turn.answer
    assert "Traceback" not in turn.answer
    assert turn.result["errors"]
    assert model.played.received == ()


BODIES: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "a list": (b"[]", 400),
    "not UTF-8": (b'{"user_prompt": "\xff"}', 400),
    "nested too deep": (b"[" * 100_000, 400),
    "no agent": (b'{"user_prompt": "x"}', 400),
    "an agent of the wrong kind": (b'{"user_prompt": "x", "agent": 7}', 400),
    "not a number": (b'{"user_prompt": "x", "agent": {"name": "a"}, "objects": NaN}', 400),
}


@pytest.mark.parametrize(("content", "status"), BODIES.values(), ids=BODIES.keys())
async def test_a_body_that_is_no_completion_is_refused(stage: Stage, content: bytes, status: int) -> None:
    path = f"/instances/{stage.caller.instance_id}/async-completions"
    answer = await stage.caller.http.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.text.strip()


IDENTITY: dict[str, Any] = {"name": "Ann", "user_name": "ann", "upn": "ann@example.com", "user_id": None, "group_ids": []}
DOORS: dict[str, tuple[dict[str, str], str, int]] = {
    "a wrong key": ({"X-API-KEY": "wrong-key-000"}, "", 401),
    "an empty key": ({"X-API-KEY": ""}, "", 401),
    "another instance": ({}, "11111111-2222-3333-4444-555555555555", 403),
    "an identity that is no JSON": ({"X-USER-IDENTITY": "ann"}, "", 400),
    "an identity without a name": ({"X-USER-IDENTITY": json.dumps({**IDENTITY, "upn": ""})}, "", 400),
}


@pytest.mark.parametrize(("headers", "instance", "status"), DOORS.values(), ids=DOORS.keys())
async def test_a_stranger_is_turned_away(stage: Stage, headers: dict[str, str], instance: str, status: int) -> None:
    path = f"/instances/{instance or stage.caller.instance_id}/async-completions"
    answer = await stage.caller.http.post(path, json=stage.model(says("Never.")).completion("Work."), headers=headers)
    assert answer.status_code == status, answer.text


async def test_settings_that_make_no_sense_are_named_and_the_turn_goes_on(stage: Stage) -> None:
    """Once, in the answer itself, each with its name and with what is in force; the rest of the answer is as ever."""
    wrong: dict[str, Any] = {
        "max_turns": "many",
        "maxOutputBytes": 5000,
        "egress_policy": {"domains": ["docs.example.com"]},
        "command_timeout_seconds": 1000,
    }
    turn = await stage.model(says("Done.")).turn("Work.", sandbox_timeout_seconds=300, **wrong)
    told = (
        "**Settings of this agent** that an administrator should look at:",
        "'max_turns' was not used: it must be a whole number. The default, 60, is in force.",
        "'maxOutputBytes' is not known and has no effect. Did you mean 'max_output_bytes'?",
        "'egress_policy.mode' ('off') and 'egress_policy.domains' contradict each other",
        "'command_timeout_seconds' (1000) and 'sandbox_timeout_seconds' (300) contradict each other",
    )
    assert turn.status == "Completed"
    for text in (turn.answer, turn.result["content"][0]["value"]):
        assert text.startswith("Done.\n\n**Settings")
        assert [text.count(words) for words in told] == [1] * len(told)
    assert len(turn.receipt.remarks) == 4


async def test_an_operation_id_of_another_user_is_not_taken_over(stage: Stage) -> None:
    """Nor does the answer tell whose it is."""
    body = stage.model(says("Mine.")).completion("Work.")
    await stage.finished(await stage.caller.start(body))
    stolen = copy.deepcopy(body)
    headers = {"X-USER-IDENTITY": json.dumps({**IDENTITY, "upn": "eve@example.com"})}
    answer = await stage.caller.http.post(f"/instances/{stage.caller.instance_id}/async-completions", json=stolen, headers=headers)
    assert answer.status_code == 409
    assert "ann" not in answer.text


def _endpoint(body: dict[str, Any]) -> dict[str, Any]:
    return next(resource for name, resource in body["objects"].items() if "apiEndpointConfigurations" in name)
