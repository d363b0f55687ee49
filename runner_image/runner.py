"""The runner: one detached process per sandbox that owns the mailbox and carries runs out.

It listens on a Unix socket in the runner's own folder. A program that the service runs through `executeCode` (see
:mod:`runner_image.exchange`) carries one frame to it and one frame back. The agent SDK is imported as soon as the socket is there, so
that a run does not wait for it (docs/decisions/0004).
"""

import argparse
import asyncio
import os
import secrets
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from runner_image.ahead import import_agent
from runner_image.courtesy import step_back
from runner_image.exchange import claim_start
from runner_image.mailbox import Mailbox, Mailboxes, open_mailboxes
from runner_image.places import Places
from runner_image.relay import Relay, serve_relay
from runner_image.run import Ready, Run
from runner_image.strangers import is_stranger
from runner_image.walls import find_wall
from workflow_schemas.errors import FrameError
from workflow_schemas.mailbox import MAX_LINE_CHARACTERS, Exchange, Reply, decode_exchange, encode
from workflow_schemas.manifest import RunManifest
from workflow_schemas.plan import TurnPlan

Start = Callable[[TurnPlan, Mailbox], Awaitable[None]]
"""Carries a run out and posts its `final`; a cancellation ends it at once."""


class Runner:
    """Answers exchanges and owns the runs of this sandbox.

    Args:
        mailboxes: The mailboxes of all runs.
        generation: Marker of this sandbox.
        carry_out: Carries one run out.
    """

    def __init__(self, mailboxes: Mailboxes, generation: str, carry_out: Start) -> None:
        self._mailboxes = mailboxes
        self._generation = generation
        self._carry_out = carry_out
        self._open: dict[str, Mailbox] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()

    async def answer(self, line: str) -> str:
        """Answer one frame with one frame; a frame that makes no sense is refused in words."""
        try:
            return encode(await self._exchange(decode_exchange(line)))
        except FrameError as error:
            return encode(self._refusal(str(error)))

    async def recover(self) -> None:
        """Settle runs that an earlier process of this runner has left unfinished."""
        for run_id in await self._mailboxes.runs():
            mailbox = self._open[run_id] = await self._mailboxes.open(run_id)
            if not mailbox.finished:
                await self._give_up(mailbox, "The runner was restarted in the middle of the run.")

    async def close(self) -> None:
        """End the runs in progress."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _exchange(self, exchange: Exchange) -> Reply:
        if exchange.generation not in ("", self._generation):
            return Reply(generation=self._generation, status="wrong_generation", detail="this is another sandbox than before")
        async with self._opening:  # a run's first exchange may arrive twice at the same moment
            mailbox = self._open.get(exchange.run_id) or await self._start(exchange)
        if isinstance(mailbox, Reply):
            return mailbox
        releases = any(message.kind == "release" for message in exchange.messages)
        reply = await mailbox.exchange(exchange.model_copy(update={"wait_seconds": 0.0}) if releases else exchange)
        if releases:
            await self._release(exchange.run_id)
        return reply

    async def _start(self, exchange: Exchange) -> Mailbox | Reply:
        run_id = exchange.run_id
        start = next((message for message in exchange.messages if message.kind == "start"), None)
        if any(message.kind == "release" for message in exchange.messages):
            await self._mailboxes.forget(run_id)  # its start may still be on the way, and must not begin it any more
        if start is None or await self._mailboxes.is_forgotten(run_id):
            return Reply(generation=self._generation, status="unknown_run", detail="nothing is known about this run here")
        if active := next((other for other, task in self._tasks.items() if not task.done()), None):
            return Reply(generation=self._generation, status="busy", detail="another run is active in this sandbox", active_run=active)
        try:
            plan = TurnPlan.model_validate(start.body["plan"])
        except (KeyError, ValidationError) as error:
            return self._refusal(f"the plan cannot be read: {error}")
        if plan.run_id != run_id:
            return self._refusal("the plan is that of another run")
        mailbox = self._open[run_id] = await self._mailboxes.open(run_id)
        await mailbox.exchange(exchange.model_copy(update={"wait_seconds": 0.0}))  # written down before it is acted upon
        self._tasks[run_id] = asyncio.create_task(self._run(plan, mailbox))
        return mailbox

    async def _run(self, plan: TurnPlan, mailbox: Mailbox) -> None:
        """Carry a run out; one that ends without a `final` would leave the service waiting."""
        work = asyncio.ensure_future(self._carry_out(plan, mailbox))
        try:
            await asyncio.wait([work])
        finally:
            work.cancel()
            await asyncio.wait([work])  # the next run must not meet what this one still clears away
        if (error := work.exception()) is not None:
            traceback.print_exception(error)
        if not mailbox.finished:
            await self._give_up(mailbox, "The runner failed in the middle of the run; its log names the reason.")

    async def _give_up(self, mailbox: Mailbox, detail: str) -> None:
        plan = mailbox.start.get("plan")
        turn_number = plan.get("turn_number") if isinstance(plan, dict) else None
        manifest = RunManifest(
            run_id=mailbox.run_id,
            turn_number=turn_number if isinstance(turn_number, int) else 1,
            end_reason="runner_crashed",
            detail=detail,
            generation=self._generation,
        )
        await mailbox.post("final", {"manifest": manifest.model_dump(mode="json")})

    async def _release(self, run_id: str) -> None:
        """Forget a run; one that is still active has nobody left to work for."""
        task = self._tasks.pop(run_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._open.pop(run_id, None)
        await self._mailboxes.forget(run_id)

    def _refusal(self, detail: str) -> Reply:
        return Reply(generation=self._generation, status="refused", detail=detail)


@asynccontextmanager
async def serve_runner(places: Places) -> AsyncIterator[Runner]:
    """Serve exchanges on the runner's socket until the context ends."""
    generation = await asyncio.to_thread(_prepare, places)
    relay, wall = Relay(), asyncio.ensure_future(find_wall(places))
    agent = asyncio.ensure_future(asyncio.to_thread(import_agent))

    async def carry_out(plan: TurnPlan, mailbox: Mailbox) -> None:
        ready = Ready(wall=asyncio.shield(wall), agent=asyncio.shield(agent))
        run = Run(plan, mailbox, places=places, relay=relay, generation=generation, ready=ready)
        await run.execute()

    async with open_mailboxes(places.state / "mailbox.sqlite", generation) as mailboxes, serve_relay(relay, places):
        runner = Runner(mailboxes, generation, carry_out)
        await runner.recover()
        try:
            async with await asyncio.start_unix_server(partial(_connected, runner), str(places.socket)):
                yield runner
        finally:
            wall.cancel()
            await asyncio.gather(runner.close(), wall, agent, return_exceptions=True)


async def _connected(runner: Runner, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        if await asyncio.to_thread(is_stranger, writer.get_extra_info("socket")):
            return
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length > MAX_LINE_CHARACTERS:
            return
        line = (await reader.readexactly(length)).decode("ascii", "replace")
        answer = (await runner.answer(line)).encode()
        writer.write(len(answer).to_bytes(4, "big") + answer)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the caller left; its messages are stored, and it will ask again
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _prepare(places: Places) -> str:
    """Make the runner's folders and return the marker of this sandbox, made when the first runner starts in it."""
    places.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in (places.workspace, places.outputs, places.agent_config, places.data):
        folder.mkdir(parents=True, exist_ok=True)
    places.socket.unlink(missing_ok=True)
    marker = places.state / "generation"
    if not marker.exists() or not marker.stat().st_size:
        marker.write_text(secrets.token_hex(16), encoding="ascii")
    return marker.read_text(encoding="ascii")


async def _main(places: Places) -> None:
    async with serve_runner(places):
        await asyncio.Event().wait()


def main() -> None:
    """Run until the sandbox ends. A second runner in the same sandbox leaves at once."""
    parser = argparse.ArgumentParser(description="The runner of a Claude Code sandbox.")
    parser.add_argument("--state", type=Path, default=Places.state)
    parser.add_argument("--data", type=Path, default=Places.data)
    parser.add_argument("--workspace", type=Path, default=Places.workspace)
    parser.add_argument("--outputs", type=Path, default=Places.outputs)
    parser.add_argument("--lock", type=int, help="number of the open file that holds the claim, see runner_image.exchange")
    given = parser.parse_args()
    step_back()
    places = Places(state=given.state, data=given.data, workspace=given.workspace, outputs=given.outputs)
    places.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = claim_start(str(places.state)) if given.lock is None else given.lock
    if lock is None:
        sys.exit(0)
    os.set_inheritable(lock, False)
    asyncio.run(_main(places))


if __name__ == "__main__":
    main()
