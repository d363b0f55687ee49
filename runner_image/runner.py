"""The runner: one detached process per sandbox that owns the mailbox and carries runs out.

It listens on a Unix socket in the runner's own folder. A program that the service runs through `executeCode` (see
:mod:`runner_image.exchange`) carries one frame to it and one frame back. The agent SDK is imported as soon as the socket is there, so
that a run does not wait for it (docs/decisions/0004).
"""

import argparse
import asyncio
import fcntl
import importlib
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import ValidationError

from runner_image.mailbox import Mailbox, Mailboxes, open_mailboxes
from runner_image.places import Places
from runner_image.relay import Relay, serve_relay
from runner_image.run import Run
from runner_image.wall import find_wall
from workflow_schemas.errors import FrameError
from workflow_schemas.mailbox import Exchange, Reply, decode_exchange, encode
from workflow_schemas.manifest import RunManifest
from workflow_schemas.plan import TurnPlan

_MAX_LINE = 256 * 1024 * 1024


class Runner:
    """Answers exchanges and owns the runs of this sandbox."""

    def __init__(self, places: Places, mailboxes: Mailboxes, relay: Relay, generation: str) -> None:
        self._wall = asyncio.ensure_future(find_wall(places))
        self._places = places
        self._mailboxes = mailboxes
        self._relay = relay
        self._generation = generation
        self._open: dict[str, Mailbox] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def answer(self, line: str) -> str:
        """Answer one frame with one frame; a frame that makes no sense is refused in words."""
        try:
            return encode(await self._exchange(decode_exchange(line)))
        except FrameError as error:
            return encode(Reply(generation=self._generation, status="refused", detail=str(error)))

    async def recover(self) -> None:
        """Settle runs that an earlier process of this runner has left unfinished."""
        for run_id in await self._mailboxes.runs():
            mailbox = self._open[run_id] = await self._mailboxes.open(run_id)
            manifest = RunManifest(
                run_id=run_id,
                turn_number=1,
                end_reason="runner_crashed",
                detail="The runner was restarted in the middle of the run.",
                generation=self._generation,
            )
            if not mailbox.finished:
                await mailbox.post("final", {"manifest": manifest.model_dump(mode="json")})

    async def _exchange(self, exchange: Exchange) -> Reply:
        if exchange.generation not in ("", self._generation):
            return Reply(generation=self._generation, status="wrong_generation", detail="this is another sandbox than before")
        mailbox = self._open.get(exchange.run_id)
        if mailbox is None:
            start = next((message for message in exchange.messages if message.kind == "start"), None)
            if start is None:
                return Reply(generation=self._generation, status="unknown_run", detail="nothing is known about this run here")
            if any(not task.done() for task in self._tasks.values()):
                return Reply(generation=self._generation, status="refused", detail="another run is active in this sandbox")
            try:
                plan = TurnPlan.model_validate(start.body["plan"])
            except (KeyError, ValidationError) as error:
                return Reply(generation=self._generation, status="refused", detail=f"the plan cannot be read: {error}")
            mailbox = self._open[exchange.run_id] = await self._mailboxes.open(exchange.run_id)
            wall = asyncio.shield(self._wall)
            run = Run(plan, mailbox, places=self._places, relay=self._relay, generation=self._generation, wall=wall)
            self._tasks[exchange.run_id] = asyncio.create_task(run.execute())
        reply = await mailbox.exchange(exchange)
        if any(message.kind == "release" for message in exchange.messages):
            await self._release(exchange.run_id)
        return reply

    async def _release(self, run_id: str) -> None:
        task = self._tasks.pop(run_id, None)
        if task is not None:
            await task
        self._open.pop(run_id, None)
        await self._mailboxes.forget(run_id)


@asynccontextmanager
async def serve_runner(places: Places) -> AsyncIterator[Runner]:
    """Serve exchanges on the runner's socket until the context ends."""
    places.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in (places.workspace, places.outputs, places.agent_config, places.data):
        folder.mkdir(parents=True, exist_ok=True)
    generation = _generation(places.state / "generation")
    relay = Relay()
    async with open_mailboxes(places.state / "mailbox.sqlite", generation) as mailboxes, serve_relay(relay, places):
        runner = Runner(places, mailboxes, relay, generation)
        await runner.recover()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                length = int.from_bytes(await reader.readexactly(4), "big")
                line = (await reader.readexactly(min(length, _MAX_LINE))).decode("ascii", "replace")
                answer = (await runner.answer(line)).encode()
                writer.write(len(answer).to_bytes(4, "big") + answer)
                await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass  # the caller left; its messages are stored, and it will ask again
            finally:
                writer.close()

        places.socket.unlink(missing_ok=True)
        async with await asyncio.start_unix_server(connected, str(places.socket)):
            yield runner


def _generation(path: Path) -> str:
    """Return the marker of this sandbox, made when the first runner starts in it."""
    if not path.exists():
        path.write_text(secrets.token_hex(16), encoding="ascii")
    return path.read_text(encoding="ascii")


async def _main(places: Places) -> None:
    async with serve_runner(places):
        await asyncio.to_thread(importlib.import_module, "runner_image.agent")
        await asyncio.Event().wait()


def main() -> None:
    """Run until the sandbox ends. A second runner in the same sandbox leaves at once."""
    parser = argparse.ArgumentParser(description="The runner of a Claude Code sandbox.")
    parser.add_argument("--state", type=Path, default=Places.state)
    parser.add_argument("--data", type=Path, default=Places.data)
    parser.add_argument("--workspace", type=Path, default=Places.workspace)
    parser.add_argument("--outputs", type=Path, default=Places.outputs)
    given = parser.parse_args()
    places = Places(state=given.state, data=given.data, workspace=given.workspace, outputs=given.outputs)
    places.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(places.state / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(0)
    asyncio.run(_main(places))


if __name__ == "__main__":
    main()
