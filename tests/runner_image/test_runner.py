"""The runner answers every frame, starts a run once, and lets no run end without a word."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runner_image.mailbox import Mailbox, open_mailboxes
from runner_image.places import Places
from runner_image.runner import Runner, serve_runner
from workflow_schemas.mailbox import Exchange, Message, Reply, decode_reply, encode
from workflow_schemas.plan import TurnPlan

pytestmark = pytest.mark.anyio
RUN = "run-12345678"
ROOT = Path(__file__).resolve().parents[2]
LIMITS = {
    "soft_seconds": 1,
    "hard_seconds": 2,
    "max_turns": 1,
    "command_timeout_seconds": 1,
    "max_output_bytes": 1024,
    "max_unpacked_bytes": 1024,
}


def plan(run_id: str = RUN, **changes: Any) -> dict[str, Any]:
    known = {"run_id": run_id, "turn_number": 7, "prompt": "p", "system_prompt": "s", "model": "m", "tools": ["Read"]}
    return known | {"limits": LIMITS, "output_stem": "turn-007"} | changes


def starting(run_id: str = RUN, **changes: Any) -> Exchange:
    return Exchange(run_id=run_id, messages=(Message(seq=1, kind="start", body={"plan": plan(run_id, **changes)}),))


def releasing(run_id: str = RUN) -> Exchange:
    return Exchange(run_id=run_id, messages=(Message(seq=2, kind="release"),))


@dataclass
class Stage:
    """A runner whose runs do what the test says."""

    folder: Path
    started: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    fails: bool = False
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def runner(self) -> AsyncIterator[Runner]:
        async with open_mailboxes(self.folder / "m", "here") as mailboxes:
            runner = Runner(mailboxes, "here", self.carry_out)
            await runner.recover()
            try:
                yield runner
            finally:
                await runner.close()

    async def carry_out(self, plan: TurnPlan, mailbox: Mailbox) -> None:
        self.started.append(plan.run_id)
        try:
            await self.go_on.wait()
            if self.fails:
                raise ValueError("an oversight")
            await mailbox.post("final", {"manifest": {}})
        finally:
            self.ended.append(plan.run_id)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def ask(runner: Runner, exchange: Exchange) -> Reply:
    return decode_reply(await runner.answer(encode(exchange)))


async def test_a_run_from_start_to_release(stage: Stage) -> None:
    async with stage.runner() as runner:
        assert (await ask(runner, starting())).status == "ok"
        stage.go_on.set()
        reply = await ask(runner, Exchange(run_id=RUN, generation="here", wait_seconds=5))
        assert [message.kind for message in reply.messages] == ["final"]
        assert (await ask(runner, releasing())).ack == 2
        assert (await ask(runner, Exchange(run_id=RUN))).status == "unknown_run"
    assert (stage.started, stage.ended) == ([RUN], [RUN])


async def test_a_first_exchange_that_comes_many_times_at_once_starts_one_run(stage: Stage) -> None:
    async with stage.runner() as runner:
        await asyncio.gather(*(ask(runner, starting()) for _ in range(20)))
        assert stage.started == [RUN]


async def test_a_late_copy_of_the_first_exchange_does_not_start_a_released_run_again(stage: Stage) -> None:
    stage.go_on.set()
    async with stage.runner() as runner:
        await ask(runner, starting())
        await ask(runner, releasing())
        assert (await ask(runner, starting())).status == "unknown_run"
    async with stage.runner() as runner:
        assert (await ask(runner, starting())).status == "unknown_run", "not even after a restart"
    assert stage.started == [RUN]


async def test_one_run_at_a_time(stage: Stage) -> None:
    async with stage.runner() as runner:
        await ask(runner, starting())
        refused = await ask(runner, starting("run-other-one"))
        assert (refused.status, refused.active_run) == ("busy", RUN)


async def test_releasing_an_active_run_ends_it(stage: Stage) -> None:
    """The service has given it up; the next turn must not find the sandbox taken."""
    async with stage.runner() as runner:
        await ask(runner, starting())
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await ask(runner, releasing())
        assert stage.ended == [RUN]
        assert (await ask(runner, starting("run-other-one"))).status == "ok"


async def test_a_run_that_was_released_before_it_started_does_not_start(stage: Stage) -> None:
    """Whoever begins a turn anew forbids the run before, whose first exchange may still be on its way."""
    stage.go_on.set()
    async with stage.runner() as runner:
        assert (await ask(runner, releasing())).status == "unknown_run"
        assert (await ask(runner, starting())).status == "unknown_run"
    assert stage.started == []


async def test_a_release_ends_exchanges_that_wait(stage: Stage) -> None:
    """A late copy of an exchange waits for nobody; its execution must not outlive the run."""
    stage.go_on.set()
    async with stage.runner() as runner:
        await ask(runner, starting())
        ghost = asyncio.create_task(ask(runner, Exchange(run_id=RUN, ack=1, wait_seconds=20)))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await ask(runner, releasing())
            await ghost


async def test_a_run_that_fails_says_so(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.fails = True
    stage.go_on.set()
    async with stage.runner() as runner:
        await ask(runner, starting())
        reply = await ask(runner, Exchange(run_id=RUN, wait_seconds=5))
    manifest = reply.messages[0].body["manifest"]
    assert (manifest["end_reason"], manifest["turn_number"], manifest["generation"]) == ("runner_crashed", 7, "here")
    assert "an oversight" in capfd.readouterr().err


async def test_a_run_that_was_cut_off_is_settled_by_the_next_runner(stage: Stage) -> None:
    async with stage.runner() as runner:
        await ask(runner, starting())
        await asyncio.sleep(0)
    async with stage.runner() as runner:
        for _ in range(2):
            reply = await ask(runner, starting())
            assert [message.kind for message in reply.messages] == ["final"]
            assert reply.messages[0].body["manifest"]["turn_number"] == 7
    assert stage.started == [RUN], "it is settled, not started again"


async def test_another_sandbox_is_named(stage: Stage) -> None:
    async with stage.runner() as runner:
        reply = await ask(runner, starting().model_copy(update={"generation": "elsewhere"}))
        assert (reply.status, reply.generation) == ("wrong_generation", "here")
    assert stage.started == []


@pytest.mark.parametrize(
    "exchange",
    [
        starting(turn_number=0),
        starting(output_stem="../x"),
        starting(run_id="short"),
        Exchange(run_id=RUN, messages=(Message(seq=1, kind="start"),)),
        Exchange(run_id="another-run", messages=starting().messages),
    ],
    ids=["bad number", "bad stem", "bad run", "no plan", "plan of another"],
)
async def test_a_plan_that_cannot_be_used_is_refused(stage: Stage, exchange: Exchange) -> None:
    async with stage.runner() as runner:
        assert (await ask(runner, exchange)).status == "refused"
    assert stage.started == []


@pytest.mark.parametrize("line", ["", "hello", "FLLM1A:xyz", "FLLM1A:" + "0" * 1000], ids=["empty", "foreign", "damaged", "zeros"])
async def test_nonsense_is_refused_in_words(stage: Stage, line: str) -> None:
    async with stage.runner() as runner:
        reply = decode_reply(await runner.answer(line))
    assert reply.status == "refused"
    assert reply.detail


async def test_the_program_of_the_service_reaches_the_runner(short_directory: Path) -> None:
    """The very program that is run through `executeCode`, in a process of its own, over the real socket."""
    state = short_directory / "state"
    places = Places(data=short_directory / "d", workspace=short_directory / "w", outputs=short_directory / "o", state=state)
    async with serve_runner(places):
        frame = encode(Exchange(run_id=RUN))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"from runner_image.exchange import main\nmain({frame!r})",
            env={"CLAUDE_CODE_RUNNER_SOCKET": str(places.socket)},
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        reply = decode_reply(said.decode())
        _, writer = await asyncio.open_unix_connection(str(places.socket))
        writer.write((1 << 31).to_bytes(4, "big") + b"a frame without end")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    async with serve_runner(places) as again:
        assert (await ask(again, Exchange(run_id=RUN))).generation == reply.generation
    assert (reply.status, len(reply.generation)) == ("unknown_run", 32)
    assert state.stat().st_mode & 0o077 == 0
