"""Starting completions: what is accepted, what is refused, and that nothing is started twice."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.orchestration_service.serving import ANN, INSTANCE, Service, answer, completion, headers, identity, served, until
from workflow_schemas.platform import CompletionResponse, LongRunningOperation

pytestmark = pytest.mark.anyio
START = f"/instances/{INSTANCE}/async-completions"
RUN = f"/instances/{INSTANCE}/completions"


async def test_a_completion_is_accepted_with_202(service: Service) -> None:
    """The answer is InProgress with the same id, and the pipeline gets the stored operation with its identity."""
    response = await service.client.post(
        START, json=completion(operation_id="op-1", session_id="c-1"), headers={"traceparent": "00-1-2-01"}
    )
    assert response.status_code == 202
    operation = LongRunningOperation.model_validate_json(response.content)
    assert (operation.operation_id, operation.status, operation.upn) == ("op-1", "InProgress", ANN)
    assert operation.last_updated is not None
    (turn,) = service.turns
    assert (turn.operation.turn_number, turn.operation.conversation_id) == (1, "c-1")
    assert (turn.identity.upn, turn.identity_header, turn.traceparent) == (ANN, identity(), "00-1-2-01")
    assert turn.request.user_prompt == "Fix it."


async def test_a_missing_operation_id_is_made(service: Service) -> None:
    response = await service.client.post(START, json=completion())
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", response.json()["operation_id"])
    assert (await service.poll(response.json()["operation_id"])).status_code == 200


async def test_repeating_a_request_starts_nothing(service: Service) -> None:
    """Ten identical requests at once start one turn; a repeat after the end still says InProgress."""
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(service.start)
    assert len(service.turns) == 1
    await service.board.finish("op-1", "Completed", answer("op-1"))
    late = await service.start()
    assert (late.status_code, late.json()["status"]) == (202, "InProgress")
    assert len(service.turns) == 1


@pytest.mark.parametrize("as_sent", [{"user_prompt": "Something else."}, {"upn": "bob@contoso.com"}], ids=["body", "user"])
async def test_an_operation_id_means_one_request_of_one_user(service: Service, as_sent: dict[str, str]) -> None:
    await service.start()
    upn = as_sent.pop("upn", ANN)
    response = await service.client.post(START, json=completion(operation_id="op-1", **as_sent), headers=headers(upn))
    assert response.status_code == 409
    assert len(service.turns) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "the body"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "recursion"),
        (b'{"user_prompt":"\\ud800","agent":{"name":"a"}}', "JSON"),
        (b'{"agent":{"name":"a"}}', "user_prompt"),
        (b'{"user_prompt":null,"agent":{"name":"a"}}', "user_prompt"),
        (b'{"user_prompt":"x"}', "agent"),
        (b'{"user_prompt":"x","agent":{}}', "agent.name"),
        (b'{"user_prompt":["x"],"agent":{"name":"a"}}', "user_prompt"),
        (b'{"user_prompt":"x","agent":{"name":"a"},"operation_id":"../x"}', "operation_id"),
        (b'{"user_prompt":"x","agent":{"name":"a"},"operation_id":"' + b"x" * 129 + b'"}', "operation_id"),
        (b'{"user_prompt":"x","agent":{"name":"a"},"session_id":"' + b"x" * 257 + b'"}', "session_id"),
    ],
    ids=lambda value: repr(value[:50]) if isinstance(value, bytes) else None,
)
async def test_a_body_that_is_no_completion_request_is_refused(service: Service, body: bytes, words: str) -> None:
    """Each is a 400 whose detail names the fault; nothing is stored or started."""
    response = await service.client.post(START, content=body)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert words in response.json()["detail"]
    assert service.turns == []
    assert await service.operations.unfinished(INSTANCE) == []


@pytest.mark.parametrize(
    "extra",
    [
        {"surprise": {"a": [1]}, "agent": {"name": "coder", "created_on": "0001-01-01T00:00:00+00:00", "new": 1}},
        {"session_id": None, "objects": None, "message_history": None, "file_history": None, "attachments": None},
        {"agent": {"name": "coder", "workflow": {"type": "no-such-workflow"}}},
        {"objects": {"a": {"type": 7}, "b": [None], "c": "x"}},
        {"user_prompt": ""},
        {"user_prompt": "\u0000 \U0001f600 " + "x" * 300_000},
    ],
    ids=["unknown", "nulls", "workflow", "objects", "empty", "odd-text"],
)
async def test_what_only_the_planner_can_judge_is_accepted(service: Service, extra: dict[str, Any]) -> None:
    """The platform shows a refusal as a bare number, so questions of meaning are answered by a Failed result."""
    response = await service.start(**extra)
    assert response.status_code == 202


INSTANCES = {"ours": INSTANCE, "other": "00000000-0000-4000-8000-000000000000"}
IDENTITY = {"X-USER-IDENTITY": identity()}


@pytest.mark.parametrize(
    ("instance", "sent", "status"),
    [
        ("ours", IDENTITY, 401),
        ("ours", {**headers(), "X-API-KEY": "wrong"}, 401),
        ("ours", {**headers(), "X-API-KEY": ""}, 401),
        ("ours", {**headers(), "X-API-KEY": "\xe9" * 20}, 401),
        ("other", headers(), 403),
        ("other", {}, 403),
        ("ours", {"X-API-KEY": headers()["X-API-KEY"]}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": "ann"}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": "[]"}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": "{}"}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": '{"upn":null}'}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": '{"upn":" "}'}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": '{"upn":"\\ud800"}'}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": '{"upn":"a\\u0000b"}'}, 400),
        ("ours", {**headers(), "X-USER-IDENTITY": "[" * 10_000}, 400),
    ],
    ids=[
        *("no-key", "wrong-key", "empty-key", "odd-key", "other-instance", "other-instance-no-key", "nobody"),
        *("no-json", "list", "empty", "null-upn", "blank-upn", "surrogate-upn", "nul-upn", "deep"),
    ],
)
@pytest.mark.parametrize("path", ["async-completions", "completions", "async-completions/op-1/status", "async-completions/op-1/events"])
async def test_who_may_come_in(service: Service, instance: str, sent: dict[str, str], status: int, path: str) -> None:
    """Every route refuses the same callers in the same way, before it says anything about operations."""
    async with httpx.AsyncClient(base_url=service.url) as stranger:
        method = "GET" if path.count("/") else "POST"
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
        response = await stranger.request(method, f"/instances/{INSTANCES[instance]}/{path}", headers=encoded)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert len(response.json()["detail"]) > 20
    assert ("www-authenticate" in response.headers) == (status == 401)


async def test_an_identity_may_not_come_twice(service: Service) -> None:
    """Two identities in one request would let a proxy and us believe different ones."""
    twice = [("X-USER-IDENTITY", identity("bob@contoso.com"))]
    request = service.client.build_request("POST", START, json=completion())
    request.headers = httpx.Headers([*request.headers.multi_items(), *twice])
    assert (await service.client.send(request)).status_code == 400


async def test_an_identity_in_utf8_is_read_and_passed_on_as_ascii(service: Service) -> None:
    sent = json.dumps({"upn": "zoë@contoso.com"}, ensure_ascii=False).encode()
    encoded = [(b"X-API-KEY", headers()["X-API-KEY"].encode()), (b"X-USER-IDENTITY", sent)]
    async with httpx.AsyncClient(base_url=service.url) as client:
        response = await client.post(START, json=completion(), headers=encoded)
    assert response.json()["upn"] == "zoë@contoso.com"
    assert service.turns[0].identity_header.isascii()


async def test_a_user_of_very_many_groups_is_served(service: Service) -> None:
    """An identity header of 64 KiB passes; uvicorn's own limit would have refused it."""
    groups = [f"{n:08x}-0000-4000-8000-000000000000" for n in range(1700)]
    large = identity(group_ids=groups)
    assert len(large) > 64 * 1024
    response = await service.client.post(START, json=completion(), headers={"X-USER-IDENTITY": large})
    assert response.status_code == 202
    assert service.turns[0].identity.group_ids == tuple(groups)


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
async def test_a_body_over_the_limit_is_refused(tmp_path: Path, chunked: bool) -> None:
    async with served(tmp_path, max_body_bytes=2048) as service:
        body = json.dumps(completion(user_prompt="x" * 5000)).encode()

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 1000):
                yield body[start : start + 1000]

        response = await service.client.post(START, content=pieces() if chunked else body)
        assert response.status_code == 413
        assert "2048 bytes" in response.json()["detail"]
        assert service.turns == []


async def test_a_turn_that_cannot_start_still_ends(service: Service) -> None:
    """A fault in the pipeline's entry is a 500 for the caller, and a Failed result for whoever polls."""
    service.fault = RuntimeError("no sandbox in reach")
    assert (await service.start()).status_code == 500
    state = (await service.poll()).json()
    assert state["status"] == "Failed"
    assert "send the message again" in state["result"]["completion"]


async def test_a_full_disk_refuses_new_work_in_words(service: Service) -> None:
    """Without room to store the operation nothing is started, and the caller reads why."""
    service.operations._writer.execute("PRAGMA max_page_count=1")  # what a full disk looks like to SQLite
    response = await service.start(user_prompt="".join(map(chr, range(0x4E00, 0x4E00 + 19000))))
    assert response.status_code == 507
    assert "Free space" in response.json()["detail"]
    assert service.turns == []


async def test_a_direct_caller_waits_for_the_answer(service: Service) -> None:
    """`/completions` answers with the result itself."""
    service.answer_at_once = True
    response = await service.client.post(RUN, json=completion(operation_id="op-1"))
    assert response.status_code == 200
    assert CompletionResponse.model_validate_json(response.content).completion == "Fixed."


async def test_a_direct_caller_may_come_back(service: Service) -> None:
    """A second call under the same id, after the end or during the turn, gets the same answer."""

    async def call(answers: list[httpx.Response]) -> None:
        answers.append(await service.client.post(RUN, json=completion(operation_id="op-1")))

    answers: list[httpx.Response] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, answers)
        tasks.start_soon(call, answers)
        await until(lambda: service.turns)
        await service.board.finish("op-1", "Failed", answer("op-1", "Too hard."))
    await call(answers)
    assert [response.json()["completion"] for response in answers] == ["Too hard."] * 3
    assert len(service.turns) == 1


async def test_a_direct_caller_is_told_to_poll_when_it_takes_too_long(tmp_path: Path) -> None:
    async with served(tmp_path, sync_timeout_seconds=0.1) as service:
        response = await service.client.post(RUN, json=completion(operation_id="op-1"))
        assert (response.status_code, response.json()["status"]) == (202, "InProgress")


async def test_a_turn_goes_on_when_the_caller_leaves(service: Service) -> None:
    """A caller who hangs up ends the waiting, not the turn."""
    async with anyio.create_task_group() as caller:
        caller.start_soon(lambda: service.client.post(RUN, json=completion(operation_id="op-1")))
        while (await service.poll()).status_code != 200:
            await anyio.sleep(0.01)
        caller.cancel_scope.cancel()
    assert (await service.poll()).json()["status"] == "InProgress"
    await service.board.finish("op-1", "Completed", answer("op-1"))
    assert (await service.poll()).json()["result"]["completion"] == "Fixed."


@pytest.mark.parametrize(("method", "path"), [("GET", "/nowhere"), ("PUT", START), ("GET", RUN)])
async def test_wrong_addresses_and_methods_are_problems_too(service: Service, method: str, path: str) -> None:
    response = await service.client.request(method, path)
    assert response.status_code in {404, 405}
    assert response.headers["content-type"] == "application/problem+json"
