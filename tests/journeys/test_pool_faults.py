"""A session pool fails in the middle of a turn: the turn waits, resumes or ends with words that say why, and nothing is lost.

Whole turns through service, Context API, provider, socket, emulator and real sandboxes. Each conversation has its own faults.
The pool's clock is minutes ahead all the time, which is no fault.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from context_client.pools import DynamicSessions, DynamicSessionsSettings, SessionPool
from context_client.pools.emulator import EmulatorSettings, Fault, PoolEmulator
from context_client.pools.identifiers import pool_identifier
from context_client.pools.local_tokens import LocalTokens
from context_client.sandboxes.local import LocalSandboxes
from orchestration_service.keeper import Pace
from orchestration_service.scripted.script import Rule
from tests.context_client.pools.conftest import serving
from tests.journeys.beside import UPN, open_stage_beside
from tests.stage import Turn, bash, packed, says, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

STEPS = (bash("echo one >> log.txt; sleep 0.3"), bash("echo two >> log.txt; echo report > /outputs/report.txt"), says("Two lines."))
MINUTES_AHEAD = 200.0
FOR_EVER = 100_000


def midway(kind: str, **more: Any) -> Fault:
    """A fault that comes when the agent is at work."""
    return Fault.model_validate({"kind": kind, "path": "/code/execute", "skip": 2, **more})


SURVIVED: dict[str, Sequence[Fault]] = {
    "before it begins": [Fault(kind="full", times=3), Fault(kind="token")],
    "no room midway": [midway("full", times=3), midway("full", skip=1, times=2, status=500), midway("status", skip=1, status=503)],
    "errors midway": [midway("status", times=2), midway("cut", skip=1), midway("cut-half", skip=1, times=2)],
    "slow and token expired midway": [midway("slow", seconds=1.0), midway("token"), midway("slow", skip=0, seconds=1.0)],
    "while files move": [
        Fault(kind="cut", path="/files/upload"),
        Fault(kind="cut-half", path="/files/download"),
        Fault(kind="status", path="/files/download"),
    ],
}
"""What goes wrong in a turn that completes all the same."""


@dataclass
class Pool:
    """A pool that is served, and the provider for it."""

    emulator: PoolEmulator
    sessions: DynamicSessions
    key: str

    def let(self, conversation: str, *faults: Fault) -> str:
        """Let things go wrong for the session of a conversation; gives its identifier."""
        identifier = pool_identifier(self.key.encode(), upn=UPN, session_id=f"code-{conversation}-claude-code")
        for fault in faults:
            self.emulator.faults.add(fault.model_copy(update={"identifier": identifier}))
        return identifier

    def happened(self, identifier: str) -> int:
        """How much went wrong for a session."""
        return sum(fault.identifier == identifier for fault in self.emulator.faults.happened)


@asynccontextmanager
async def open_pool(*, wait_seconds: float = 60.0, **chosen: Any) -> AsyncIterator[Pool]:
    key = secrets.token_hex(32)
    async with AsyncExitStack() as stack:
        more = {"max_sessions": 20, "clock_ahead_seconds": MINUTES_AHEAD, **chosen}
        emulator = PoolEmulator(EmulatorSettings(token_key=SecretStr(key), **more), await stack.enter_async_context(LocalSandboxes()))
        stack.push_async_callback(emulator.aclose)
        url = await stack.enter_async_context(serving(emulator))
        settings = DynamicSessionsSettings(
            pools=(SessionPool(name="near", endpoint=url),),
            identifier_key=SecretStr(key),
            wait_seconds=wait_seconds,
            retry_seconds=0.1,
            unreachable_seconds=1.0,
        )
        yield Pool(emulator, await stack.enter_async_context(DynamicSessions(settings, tokens=LocalTokens(key.encode()))), key)


@dataclass
class Played:
    """A turn and what it left."""

    turn: Turn
    faults: int
    model_calls: int
    archive: dict[str, bytes]
    report: bytes


@pytest.fixture(scope="module")
async def played(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> dict[str, Played]:
    """All the turns, some at a time."""
    async with open_pool() as pool, open_stage_beside(tmp_path_factory.mktemp("platform"), pool.sessions) as stage:

        async def play(name: str) -> Played:
            conversation = name.replace(" ", "-").replace(",", "")
            identifier = pool.let(conversation, *SURVIVED[name])
            model = stage.model(*STEPS)
            record = await stage.caller.upload(conversation, "repo.tar", packed({"r/log.txt": "zero\n"}))
            turn = await model.turn("Write.", [record], conversation=conversation)
            calls = len(model.played.received)
            files = turn.files
            archive = await stage.archive(turn) if "workspace" in files else {}
            report = await stage.content(files["turn-001-report.txt"]) if "turn-001-report.txt" in files else b""
            return Played(turn, pool.happened(identifier), calls, archive, report)

        return await together(SURVIVED, play)


@pytest.mark.parametrize("name", SURVIVED)
async def test_a_turn_waits_or_resumes_and_nothing_is_lost_or_done_twice(played: dict[str, Played], name: str) -> None:
    one = played[name]
    assert (one.turn.status, one.turn.answer) == ("Completed", "Two lines.")
    assert one.faults == sum(fault.times for fault in SURVIVED[name])
    assert one.archive["workspace/log.txt"] == b"zero\none\ntwo\n"
    assert one.report == b"report\n"
    assert one.model_calls == one.turn.receipt.usage.model_calls == len(STEPS)
    assert one.turn.receipt.lost == ()
    assert {artifact["metadata"]["integrity"] for artifact in one.turn.artifacts("File")} == {"exact"}


REFUSED = {
    "token refused for good": (midway("token", times=FOR_EVER), "does not let us in"),
    "identifier refused": (midway("identifier", times=FOR_EVER), "does not take the session's identifier"),
}
"""What a pool does to a turn until somebody repairs it, and the words that name it."""


async def test_a_turn_that_is_kept_out_says_why_and_is_resumed_when_it_is_let_in(tmp_path: Path) -> None:
    """The agent's work waits in the sandbox meanwhile; its result takes the place of the failure."""
    pace = Pace(patience=1.0, late=(0.5,) * 120)
    async with open_pool() as pool, open_stage_beside(tmp_path, pool.sessions, pace=pace) as stage:

        async def play(name: str) -> tuple[Turn, Turn]:
            conversation, (fault, _) = name.replace(" ", "-"), REFUSED[name]
            identifier = pool.let(conversation, fault)
            turn = await stage.model(*STEPS).turn("Write.", [], conversation=conversation)
            assert pool.happened(identifier)
            pool.emulator.faults.clear()
            while (late := await stage.finished(turn.operation_id)).status == "Failed":
                await asyncio.sleep(0.1)
            return turn, late

        for name, (_, words) in REFUSED.items():
            failed, late = await play(name)
            assert failed.status == "Failed"
            assert failed.receipt.end_reason == "sandbox_lost"
            assert words in failed.receipt.detail
            assert late.receipt.lost == ()
            assert "workspace" in late.files
            assert any("came late" in remark for remark in late.receipt.remarks)


async def test_an_evicted_session_goes_on_from_its_seal(tmp_path: Path) -> None:
    """Evicted when a turn is about to start, nothing is lost. Evicted midway, that turn is, and says so; the next one knows of it."""
    rules = (
        Rule(pattern="Write one", steps=(bash("echo one > log.txt"), says("One."))),
        Rule(pattern="Write two", steps=(bash("echo two >> log.txt"), says("Two."))),
        Rule(pattern="Write three", steps=(bash("echo three >> log.txt; sleep 2"), bash("pwd"), says("Never."))),
        Rule(pattern="Go on", steps=(bash("cat log.txt"), says("On."))),
    )
    async with open_pool() as pool:
        async with open_stage_beside(tmp_path, pool.sessions) as stage:
            assert (await stage.model(rules=rules).turn("Write one.", conversation="evicted")).status == "Completed"
        pool.let("evicted", midway("evict", skip=1))  # once its sandbox was found to be there still
        async with open_stage_beside(tmp_path, pool.sessions) as stage:
            second = await stage.model(rules=rules).turn("Write two.", conversation="evicted")
            model = stage.model(rules=rules)
            operation = await stage.caller.start(model.completion("Write three.", conversation="evicted"))
            while not model.played.received:
                await asyncio.sleep(0.05)
            identifier = pool.let("evicted", midway("evict", skip=0))
            third = await stage.finished(operation)
            fourth = await model.turn("Go on.", conversation="evicted")
            log = (await stage.archive(fourth))["workspace/log.txt"]
    assert pool.happened(identifier) == 2
    assert [turn.status for turn in (second, third, fourth)] == ["Completed", "Failed", "Completed"]
    assert second.receipt.lost == ()
    assert (third.receipt.end_reason, third.receipt.lost) == ("sandbox_lost", ("the workspace of this turn: the sandbox is gone",))
    assert "replaced" in third.receipt.detail
    assert {"events", "log", "manifest"} <= set(third.files)
    for turn, sealed in ((second, 1), (fourth, 2)):
        began = turn.receipt.began
        assert (began.workspace, began.from_turn, began.memory) == ("restored", sealed, "session")
    assert log == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        pytest.param({"max_sessions": 1}, r"no session pool had a free slot within \d seconds \(place 1 in the line", id="full"),
        pytest.param({"clock_ahead_seconds": 7200}, r"the pool's clock is 7\d\d\d seconds ahead of ours", id="clock"),
    ],
)
async def test_a_turn_that_gets_no_sandbox_says_why(tmp_path: Path, chosen: dict[str, Any], words: str) -> None:
    """Nothing was begun, so nothing is lost: the model heard nothing."""
    async with open_pool(wait_seconds=0.5, **chosen) as pool, open_stage_beside(tmp_path, pool.sessions) as stage:
        pool.emulator.slots.take("somebody else")
        model = stage.model(*STEPS)
        record = await stage.caller.upload("late", "repo.tar", packed({"r/log.txt": "zero\n"}))
        turn = await model.turn("Write.", [record], conversation="late")
        assert turn.status == "Failed"
        assert re.search(words, turn.answer)
        assert not model.played.received
