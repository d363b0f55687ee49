"""Looking at conversations, going back in them, and beginning others with them."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from context_client import UserIdentity
from orchestration_service.operations.conversation import Conversation, SandboxMark, TurnRecord
from tests.orchestration_service.serving import ANN, INSTANCE, Service, headers, identity
from tests.stage import packed

pytestmark = pytest.mark.anyio

_ANN = UserIdentity.from_header(identity())


def _turn(number: int, parent: int, *, file_id: str = "", sealed: bool = True) -> TurnRecord:
    return TurnRecord(
        turn_number=number,
        parent_turn=parent,
        operation_id=f"op-{number}",
        end_reason="completed",
        seal_sha256="0" * 64 if sealed else None,
        archives=tuple(f"turn-{one:03d}-seal.tar" for one in range(1, number + 1)) if sealed else (),
        file_ids={f"turn-{number:03d}-seal.tar": file_id or f"file-{number}"} if sealed else {},
        created_at=datetime(2026, 11, 22, tzinfo=UTC),
    )


def _tar(number: int) -> bytes:
    return packed({"seal/number.txt": f"{number}\n"})


async def _saved(service: Service, *turns: TurnRecord, conversation_id: str = "c") -> Conversation:
    conversation = Conversation(
        instance_id=INSTANCE,
        upn=ANN,
        conversation_id=conversation_id,
        profile="restricted",
        head_turn=turns[-1].turn_number,
        turns=turns,
        sandbox=SandboxMark(session_id="s", generation="g"),
    )
    return await service.operations.save_conversation(conversation)


async def _ask(
    service: Service, what: str = "", body: dict[str, Any] | None = None, *, conversation_id: str = "c", **more: Any
) -> httpx.Response:
    path = f"/instances/{INSTANCE}/conversations/{conversation_id}{what}"
    return await service.client.request("POST" if what else "GET", path, json=body, **more)


async def test_a_conversation_shows_its_turns(service: Service) -> None:
    await _saved(service, _turn(1, 0), _turn(2, 1, sealed=False))
    shown = (await _ask(service)).json()
    assert {name: shown[name] for name in ("conversation_id", "sandbox_profile", "head_turn", "forked_from")} == {
        "conversation_id": "c",
        "sandbox_profile": "restricted",
        "head_turn": 2,
        "forked_from": None,
    }
    assert shown["turns"][0] == {
        "turn_number": 1,
        "parent_turn": 0,
        "operation_id": "op-1",
        "end_reason": "completed",
        "created_at": "2026-11-22T00:00:00Z",
        "is_sealed": True,
        "is_head": False,
        "files": {"turn-001-seal.tar": "file-1"},
    }
    assert (shown["turns"][1]["is_sealed"], shown["turns"][1]["is_head"]) == (False, True)


@pytest.mark.parametrize(("what", "body"), [("", None), ("/rewind", {"turn_number": 1}), ("/fork", {"target_conversation_id": "d"})])
async def test_only_its_user_sees_a_conversation(service: Service, what: str, body: dict[str, Any] | None) -> None:
    """Another user's conversation looks exactly like one that does not exist; instance and key count as everywhere."""
    await _saved(service, _turn(1, 0))
    theirs = await _ask(service, what, body, headers=headers("bob@contoso.com"))
    nobodys = await _ask(service, what, body, conversation_id="d")
    reserved = await _ask(service, what, body, conversation_id="user-workspace:restricted:coder")
    assert [answer.status_code for answer in (theirs, nobodys, reserved)] == [404] * 3
    assert theirs.json()["detail"].replace("'c'", "'d'") == nobodys.json()["detail"]
    assert (await _ask(service, what, body, headers={"X-API-KEY": "other"})).status_code == 401
    other = f"/instances/00000000-0000-0000-0000-000000000000/conversations/c{what}"
    assert (await service.client.request("POST" if what else "GET", other, json=body)).status_code == 403


async def test_going_back_moves_the_head_and_loses_nothing(service: Service) -> None:
    await _saved(service, _turn(1, 0), _turn(2, 1))
    back = await _ask(service, "/rewind", {"turn_number": 1})
    assert (back.status_code, back.json()["head_turn"], len(back.json()["turns"])) == (200, 1, 2)
    saved = await service.operations.conversation(INSTANCE, ANN, "c")
    assert saved
    assert saved.sandbox is None, "a live sandbox would go on from the turn that was left"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"turn_number": 7}, 404, "one of: 1, 2."),
        ({"turn_number": 3}, 404, "one of: 1, 2."),
        ({"turn_number": 0}, 400, "turn_number"),
        ({"turn_number": "last"}, 400, "turn_number"),
        ({}, 400, "turn_number"),
    ],
    ids=["unknown", "not sealed", "too small", "no number", "none"],
)
async def test_a_turn_that_is_not_there_is_refused_with_those_that_are(
    service: Service, body: dict[str, Any], status: int, words: str
) -> None:
    await _saved(service, _turn(1, 0), _turn(2, 1), _turn(3, 2, sealed=False))
    refused = await _ask(service, "/rewind", body)
    assert (refused.status_code, words in refused.json()["detail"]) == (status, True)


async def test_nothing_is_changed_while_a_turn_runs(service: Service) -> None:
    await _saved(service, _turn(1, 0))
    await service.start("op-9", session_id="c")
    rewind = await _ask(service, "/rewind", {"turn_number": 1})
    fork = await _ask(service, "/fork", {"target_conversation_id": "d"})
    assert [answer.status_code for answer in (rewind, fork)] == [409, 409]
    assert "Wait for its end" in rewind.json()["detail"]
    assert (await _ask(service)).status_code == 200


async def test_a_fork_takes_the_archives_with_it(service: Service) -> None:
    """Copied into the new conversation, so that a sandbox there finds them; the other conversation stays as it is."""
    records = [
        await service.context.upload_conversation_file(_ANN, "c", "coder", f"turn-{number:03d}-seal.tar", _tar(number))
        for number in (1, 2, 3)
    ]
    turns = [_turn(number, number - 1, file_id=record.id) for number, record in enumerate(records, start=1)]
    before = await _saved(service, *turns)
    forked = await _ask(service, "/fork", {"target_conversation_id": "d", "turn_number": 2})
    again = await _ask(service, "/fork", {"target_conversation_id": "d", "turn_number": 2})
    assert forked.status_code == 200
    shown = forked.json()
    assert (shown["head_turn"], shown["forked_from"], [turn["turn_number"] for turn in shown["turns"]]) == (2, "c", [1, 2])
    assert again.json() == shown, "repeating it changes nothing"
    for turn in shown["turns"]:
        for name, file_id in turn["files"].items():
            record = await service.context.file_record(_ANN, file_id)
            assert (record.conversation_id, record.file_name) == ("d", name)
            assert (await service.context.file_content(_ANN, file_id)).content == _tar(turn["turn_number"])
    assert await service.operations.conversation(INSTANCE, ANN, "c") == before
    await service.start("op-d", session_id="d")
    assert service.turns[-1].operation.turn_number == 3, "turns are counted on"


@pytest.mark.parametrize("target", ["c", "d", "user-workspace:restricted:coder"], ids=["itself", "begun", "reserved"])
async def test_only_a_new_conversation_can_be_a_fork(service: Service, target: str) -> None:
    await _saved(service, _turn(1, 0))
    await _saved(service, _turn(1, 0), conversation_id="d")
    refused = await _ask(service, "/fork", {"target_conversation_id": target})
    assert refused.status_code == 409


async def test_archives_that_are_gone_are_said_to_be(service: Service) -> None:
    """A file record that is not there: nothing is begun."""
    await _saved(service, _turn(1, 0))
    failed = await _ask(service, "/fork", {"target_conversation_id": "d"})
    assert (failed.status_code, "turn-001-seal.tar" in failed.json()["detail"]) == (409, True)
    assert (await _ask(service, conversation_id="d")).status_code == 404


async def test_a_completion_cannot_claim_a_reserved_conversation(service: Service) -> None:
    refused = await service.start("op-1", session_id="user-workspace:restricted:coder")
    assert (refused.status_code, "reserved" in refused.json()["detail"]) == (400, True)
