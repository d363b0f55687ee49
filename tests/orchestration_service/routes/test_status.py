"""The poll, as a portal does it, and the state of the service."""

from pathlib import Path

import anyio
import pytest

from orchestration_service.operations.orphans import end_interrupted
from tests.orchestration_service.serving import ANN, INSTANCE, Service, answer, served

pytestmark = pytest.mark.anyio


async def test_what_a_polling_portal_sees(service: Service) -> None:
    """One text item from the first poll on, then the answer with the status, and it stays."""
    await service.start()
    seen = [(await service.poll()).json()]
    service.board.publish("op-1", "Reading files", prompt_tokens=10)
    seen.append((await service.poll()).json())
    await service.board.finish("op-1", "Completed", answer("op-1"))
    seen += [(await service.poll()).json() for _ in range(2)]
    assert [(state["status"], [item["value"] for item in state["result"]["content"]]) for state in seen] == [
        ("InProgress", ["Accepted; the turn is about to start."]),
        ("InProgress", ["Reading files"]),
        ("Completed", ["Fixed."]),
        ("Completed", ["Fixed."]),
    ]
    assert all(next(iter(state["result"]["content"][0])) == "type" for state in seen)
    assert seen[1]["prompt_tokens"] == 10


@pytest.mark.parametrize(
    ("operation_id", "upn", "status"),
    [("op-1", ANN.upper(), 200), ("op-1", "bob@contoso.com", 404), ("op-2", ANN, 404), ("%2e%2e%00", ANN, 404)],
    ids=["other-case", "other-user", "unknown", "odd"],
)
async def test_only_its_user_sees_an_operation(service: Service, operation_id: str, upn: str, status: int) -> None:
    """Another user's operation looks exactly like one that does not exist."""
    await service.start()
    response = await service.poll(operation_id, upn)
    assert response.status_code == status


async def test_a_poll_finds_what_an_earlier_process_finished(tmp_path: Path) -> None:
    async with served(tmp_path) as first:
        await first.start()
        await first.board.finish("op-1", "Completed", answer("op-1"))
        before = (await first.poll()).content
    async with served(tmp_path) as second:
        assert (await second.poll()).content == before
        assert (await second.poll("op-1", "bob@contoso.com")).status_code == 404


async def test_progress_survives_a_restart_and_orphans_end(tmp_path: Path) -> None:
    """After a crash the last progress is still shown, until the orphan is settled with a readable result."""
    async with served(tmp_path) as first:
        await first.start()
        first.board.publish("op-1", "Running the tests")
    async with served(tmp_path) as second:
        assert (await second.poll()).json()["result"]["completion"] == "Running the tests"
        (orphan,) = await second.operations.claimable(INSTANCE)
        claim = await second.operations.claim("op-1", "second", 30)
        assert claim
        await end_interrupted(second.operations, orphan, claim)
        await anyio.sleep(0.3)  # an operation of another process is looked up again after a quarter of a second
        state = (await second.poll()).json()
    assert state["status"] == "Failed"
    assert "restarted" in state["result"]["completion"]
    assert state["result"]["content"] == []


@pytest.mark.parametrize("path", ["/status", f"/instances/{INSTANCE}/status", f"/instances/{INSTANCE.upper()}/status"])
async def test_probes_need_no_key(service: Service, path: str) -> None:
    response = await service.client.get(path, headers={"X-API-KEY": "", "X-USER-IDENTITY": ""})
    assert response.status_code == 200
    assert (response.json()["name"], response.json()["status"]) == ("ClaudeCode", "Ready")
    assert response.json().get("instance_id") == (INSTANCE if "instances" in path else None)


async def test_the_state_of_another_instance_is_not_ours_to_tell(service: Service) -> None:
    assert (await service.client.get("/instances/other/status")).status_code == 403


async def test_head_has_no_body(service: Service) -> None:
    await service.start()
    path = f"/instances/{INSTANCE}/async-completions/op-1/status"
    response = await service.client.head(path)
    assert (response.status_code, response.content) == (200, b"")


async def test_a_connection_that_was_idle_serves_the_next_poll(service: Service) -> None:
    """A portal that polls every few seconds never meets a close that crosses its request."""
    async with await anyio.connect_tcp("127.0.0.1", service.client.base_url.port or 0) as stream:
        asked = b"GET /nowhere HTTP/1.1\r\nHost: here\r\n\r\n"
        await stream.send(asked)
        assert (await stream.receive()).startswith(b"HTTP/1.1 404")
        await anyio.sleep(6)
        await stream.send(asked)
        assert (await stream.receive()).startswith(b"HTTP/1.1 404")
