"""Turns whose model calls take the gateway: the same turns as through the mailbox, in a sandbox that has a network."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestration_service.scripted.script import Step
from tests.journeys.connected import Replica, open_connected
from tests.stage import Turn, bash, calls, says

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

LOOKING = (
    "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /run/claude-code/* /tmp/* ~/* 2> /dev/null | tr '\\0' '\\n' | grep -cE 'cct1[.]';"
    " grep -rE 'cct1[.]' $CLAUDE_CONFIG_DIR /workspace 2> /dev/null | wc -l; (echo > /dev/tcp/127.0.0.1/{port}) 2> /dev/null || echo walled"
)


@pytest.fixture(scope="module")
async def replica(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replica]:
    async with open_connected(tmp_path_factory.mktemp("direct")) as (opened,):
        yield opened


async def model_calls(replica: Replica, turn: Turn) -> list[dict[str, Any]]:
    """What is logged of the model calls of a turn, but for names and times."""
    events = [event async for event in replica.stage.caller.events(turn.operation_id)]
    kept = ("model", "status", "input_tokens", "output_tokens")
    return [{name: event[name] for name in kept} for event in events if event["type"] == "model_call"]


async def test_a_direct_turn_is_that_of_the_mailbox(replica: Replica) -> None:
    """Answer, files, usage, cost and log are the same, and the agent sees neither the token nor the gateway."""
    port = httpx.URL(replica.url).port
    steps = (
        Step(thinking="Hm.", text="Let me see.", tool_use=bash("echo work >> work.txt").tool_use),
        bash(LOOKING.format(port=port)),
        calls(("Read", {"file_path": "/workspace/work.txt"})),
        says("Däne 🙂 is done."),
    )
    before = len(replica.calls)
    direct = await replica.stage.model(*steps).turn("Work.", model_access="direct")
    assert direct.receipt.model_access == "direct", direct.receipt.remarks
    came = replica.calls[before:]
    plain = await replica.stage.model(*steps).turn("Work.")
    assert (plain.receipt.model_access, len(replica.calls)) == ("mailbox", before + len(came))
    assert [path for path, _ in came] == ["/"] + ["/v1/messages"] * 4
    for turn in (direct, plain):
        assert (turn.status, turn.answer, turn.receipt.end_reason) == ("Completed", "Däne 🙂 is done.", "completed")
        assert (await replica.stage.archive(turn))["workspace/work.txt"] == b"work\n"
    assert (direct.receipt.usage, direct.receipt.models) == (plain.receipt.usage, plain.receipt.models)
    assert await model_calls(replica, direct) == await model_calls(replica, plain)
    ends = [event async for event in replica.stage.caller.events(direct.operation_id) if event["type"] == "tool_end"]
    assert ends[1]["output"].split() == ["0", "0", "walled"]
    assert direct.receipt.mailbox_bytes_out < plain.receipt.mailbox_bytes_out, "the requests are not in it"
    _, token = came[0]
    for artifact in direct.files.values():
        assert token.encode() not in await replica.stage.content(artifact)


async def test_the_budget_stops_it_at_the_same_call(replica: Replica) -> None:
    spent = Step(text="Working.", tool_use=bash("echo work >> work.txt").tool_use, usage={"input_tokens": 400, "output_tokens": 100})
    turn = await replica.stage.model(spent, when_over="loop").turn("Work for ever.", max_total_tokens=1200, model_access="direct")
    assert (turn.status, turn.receipt.end_reason, turn.receipt.model_access) == ("Completed", "budget", "direct")
    assert turn.result["total_tokens"] == 1500


async def test_a_token_ends_with_its_run(replica: Replica) -> None:
    model = replica.stage.model(says("Done."))
    before = len(replica.calls)
    await model.turn("Work.", model_access="direct")
    _, token = replica.calls[before]
    async with httpx.AsyncClient(base_url=replica.url, headers={"authorization": f"Bearer {token}"}) as client:
        refused = await client.post("/model-access/v1/messages", json={"model": "m", "messages": [], "stream": True})
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert len(model.played.received) == 1


async def test_a_stream_that_breaks_is_asked_for_again(replica: Replica) -> None:
    """The CLI has seen a part of it, so it asks for the answer in one piece: through the mailbox. What the broken one used is counted."""
    long = "Long enough to be cut somewhere in the middle of all this text. " * 4
    model = replica.stage.model(
        Step(text=long, malformed="cut", fault_times=1, usage={"input_tokens": 40, "output_tokens": 20}), delta_chars=9
    )
    turn = await model.turn("Work.", model_access="direct")
    assert (turn.status, turn.answer, turn.receipt.model_access) == ("Completed", long.strip(), "mixed")
    assert turn.receipt.usage.model_calls == 1
    assert turn.receipt.models[0].lost_tokens >= 40
    assert len(model.played.received) == 2


async def test_a_gateway_that_is_not_there(tmp_path: Path) -> None:
    """The mailbox takes its place, and the user is told."""
    async with open_connected(tmp_path, gateway_url="http://127.0.0.1:9") as (replica,):
        turn = await replica.stage.model(bash("true"), says("Done.")).turn("Work.", model_access="direct")
    assert (turn.answer, turn.receipt.model_access) == ("Done.", "mailbox")
    assert [remark for remark in turn.receipt.remarks if "gateway" in remark and "through the mailbox" in remark]


async def test_a_turn_is_taken_over(tmp_path: Path) -> None:
    """The new owner names its own gateway and a new token, and goes on with the account of the old one."""
    work = Step(text="On it.", tool_use=bash("sleep 0.3").tool_use, usage={"input_tokens": 100, "output_tokens": 10}, delay_seconds=0.2)
    async with open_connected(tmp_path, replicas=2) as (first, second):
        model = first.stage.model(*[work] * 7, says("Done.", usage={"input_tokens": 100, "output_tokens": 10}))
        operation = await first.stage.caller.start(model.completion("Work.", model_access="direct"))
        while len(model.played.received) < 3:
            await first.stage.caller.status(operation)
        await first.close()
        turn = await second.stage.finished(operation)
        assert (turn.status, turn.answer) == ("Completed", "Done.")
        assert any("interrupted" in remark for remark in turn.receipt.remarks)
        (old,), (new,) = first.tokens, second.tokens
        assert old != new
        assert len(second.calls) > 2
        assert 8 <= len(model.played.received) <= 10, "one call may have been under way, and have been begun again before its owner ended"
        assert turn.receipt.usage.model_calls == 8
        assert turn.receipt.usage.total_tokens - sum(one.lost_tokens for one in turn.receipt.models) == 880
