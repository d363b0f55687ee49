"""One run of a turn inside the sandbox, from the plan to the sealed outputs."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runner_image.errors import AgentError, InputError, RunnerError, WorkspaceError
from runner_image.inputs import unpack_inputs
from runner_image.leftovers import end_leftovers
from runner_image.mailbox import Mailbox
from runner_image.outputs import Outputs, events_text, log_text
from runner_image.places import Places
from runner_image.relay import ModelCalls, Relay
from runner_image.snapshot import Base, Change, Snapshots
from runner_image.wall import Wall, find_wall
from workflow_schemas.events import Done, Event, Failed, Progress, Warned
from workflow_schemas.manifest import EndReason, RunManifest
from workflow_schemas.plan import TurnPlan

if TYPE_CHECKING:
    from runner_image.agent import Agent, AgentRun

_MAX_EVENTS = 5000


class Run:
    """A run in progress. Inputs are put into the workspace, the agent works, the outputs are sealed: in every case a `final` is posted."""

    def __init__(self, plan: TurnPlan, mailbox: Mailbox, places: Places, relay: Relay, generation: str) -> None:
        self._plan = plan
        self._mailbox = mailbox
        self._places = places
        self._relay = relay
        self._generation = generation
        self._calls = ModelCalls(mailbox)
        self._events: list[Event] = []
        self._remarks: list[str] = []
        self._agent: Agent | None = None
        self._stop: tuple[EndReason, str] | None = None
        self._outcome: AgentRun | None = None
        self._wall: Wall | None = None

    async def execute(self) -> None:
        """Carry the run out. Whatever goes wrong inside is part of the manifest, never an exception."""
        listener = asyncio.create_task(self._listen())
        base: Base | None = None
        end: tuple[EndReason, str] = ("completed", "")
        try:
            self._wall = await find_wall(self._places)
            await self._prepare()
            base = await self._work(Snapshots(self._wall))
        except InputError as error:
            end = ("input_error", str(error))
        except RunnerError as error:
            end = ("agent_error", str(error))
        except OSError as error:
            end = ("agent_error", f"the sandbox ran out of something: {error}")
        finally:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener
        if self._outcome is not None and end[0] == "completed":
            end = (self._outcome.end_reason, self._outcome.detail)
        if self._stop is not None and end[0] in ("completed", "agent_error"):
            end = self._stop
        await self._finish(base, end)

    async def _prepare(self) -> None:
        places = self._places
        for folder in (places.workspace, places.outputs, places.agent_config, places.data):
            folder.mkdir(parents=True, exist_ok=True)
        if self._plan.fresh_workspace:
            await asyncio.to_thread(_empty, places.workspace)
        await asyncio.to_thread(_empty, places.outputs)
        await self.emit(Progress(at=time.time(), step="workspace", message="Putting the files into the workspace."))
        remarks = await asyncio.to_thread(unpack_inputs, self._plan.inputs, places.data, places.workspace, self._plan.limits)
        for remark in remarks:
            await self.emit(Progress(at=time.time(), step="workspace", message=remark))

    async def _work(self, snapshots: Snapshots) -> Base:
        from runner_image.agent import (  # the SDK takes most of a second to import; it is imported ahead
            agent_environment,
            start_agent,
        )

        assert self._wall is not None
        wrapper = await asyncio.to_thread(self._wall.install, agent_environment(self._plan))
        base = asyncio.create_task(snapshots.base())
        complaints: list[str] = []
        async with self._behind_relay(base):
            try:
                resume = await asyncio.to_thread(self._earlier_session)
                async with start_agent(self._plan, wrapper=wrapper, emit=self.emit, resume=resume, log=complaints.append) as agent:
                    self._agent = agent
                    await self.emit(Progress(at=time.time(), step="run", message="The agent is at work."))
                    clock = asyncio.create_task(self._watch_the_clock(agent))
                    try:
                        if self._stop is not None:
                            await agent.stop(*self._stop)
                        self._outcome = agent.run
                        await agent.work(self._plan.prompt)
                    finally:
                        self._agent = None
                        clock.cancel()
            except AgentError as error:
                words = " ".join(complaints[-5:])[:500]
                raise AgentError(f"{error} {words}".strip()) from error
            finally:
                self._calls.refuse("the run has ended")
        recorded = await base
        self._remarks += recorded.remarks
        return recorded

    @asynccontextmanager
    async def _behind_relay(self, base: "asyncio.Task[Base]") -> AsyncIterator[None]:
        async def snapshot_taken() -> None:
            await asyncio.wait([base])

        self._relay.calls, self._relay.ready = self._calls, snapshot_taken
        try:
            yield
        finally:
            self._relay.calls = self._relay.ready = None

    async def _watch_the_clock(self, agent: "Agent") -> None:
        limits = self._plan.limits
        await asyncio.sleep(limits.soft_seconds)
        left = limits.hard_seconds - limits.soft_seconds
        await self.emit(Warned(at=time.time(), message=f"The time is nearly up; the agent was told to wrap up within {left:.0f} s."))
        with suppress(RunnerError):
            await agent.say(
                f"Note from the environment: {left:.0f} seconds are left. Stop starting new work, leave the files in a usable state, "
                "and answer now with what is done and what remains."
            )
        await asyncio.sleep(left)
        await agent.stop("deadline", f"The time limit of {limits.hard_seconds:.0f} s was reached.")

    async def _listen(self) -> None:
        while True:
            message = await self._mailbox.receive()
            if message.kind in ("model_answer", "resend"):
                await self._calls.take(message)
            elif message.kind == "say" and self._agent is not None:
                await self._agent.say(str(message.body.get("text", "")))
            elif message.kind == "stop":
                self._stop = (message.body["reason"], str(message.body.get("detail", "")))
                self._calls.refuse("the run was stopped")
                if self._agent is not None:
                    await self._agent.stop(*self._stop)

    async def _finish(self, base: Base | None, end: tuple[EndReason, str]) -> None:
        left = await end_leftovers()
        await self.emit(Progress(at=time.time(), step="seal", message="Sealing the outputs."))
        change = await self._change(base)
        ran = self._outcome
        last = (
            Failed(at=time.time(), error=end[1])
            if ran is None
            else Done(at=time.time(), session_id=ran.session_id, turns=ran.usage.model_calls)
        )
        await self.emit(last)
        manifest = RunManifest(
            run_id=self._plan.run_id,
            turn_number=self._plan.turn_number,
            end_reason=end[0],
            detail=end[1],
            answer=ran.answer if ran else "",
            session_id=ran.session_id if ran else "",
            generation=self._generation,
            patch=change.facts if change else None,
            wall=self._wall.describe() if self._wall else "none: the agent was not started",
            processes_left=left,
        )
        if ran is not None:
            manifest = manifest.model_copy(update={"usage": ran.usage})
        manifest = await asyncio.to_thread(self._seal, change, manifest)
        await self._mailbox.post("final", {"manifest": manifest.model_dump(mode="json")})

    async def _change(self, base: Base | None) -> Change | None:
        if base is None or self._wall is None:
            return None
        try:
            return await Snapshots(self._wall).change(base)
        except WorkspaceError as error:
            self._remarks.append(f"The change of the workspace could not be recorded: {error}")
            return None

    def _seal(self, change: Change | None, manifest: RunManifest) -> RunManifest:
        """Write every output; what cannot be written is a remark, so that the rest survives a full disk."""
        outputs = Outputs(self._plan, self._places)
        transcript = None
        if manifest.session_id:
            from runner_image.agent import transcript as transcript_path

            transcript = transcript_path(self._places.agent_config, manifest.session_id)
        end = f"{manifest.end_reason} {manifest.detail}".strip()
        if change is not None:
            self._remarks += change.remarks
        steps: list[Callable[[], None]] = [
            lambda: outputs.text("changes.patch.txt", "patch", change.patch) if change is not None and change.patch else None,
            lambda: outputs.text("events.jsonl", "events", events_text(self._events)),
            lambda: outputs.text("log.txt", "log", log_text(self._events, end)),
            outputs.deliverables,
            lambda: outputs.archive(change, self._events, transcript, manifest) if change is not None else None,
        ]
        for step in steps:
            try:
                step()
            except OSError as error:
                outputs.remarks.append(f"An output could not be written: {error.strerror or error}")
        remarks = (*self._remarks, *outputs.remarks)
        manifest = manifest.model_copy(update={"outputs": tuple(outputs.files), "remarks": remarks})
        with suppress(OSError):
            outputs.manifest(manifest)
        return manifest

    def _earlier_session(self) -> str | None:
        """Return the agent's latest session in this sandbox when its workspace is continued."""
        if self._plan.fresh_workspace:
            return None
        kept = sorted(self._places.agent_config.glob("projects/*/*.jsonl"), key=lambda path: path.stat().st_mtime)
        return kept[-1].stem if kept else None

    async def emit(self, event: Event) -> None:
        """Number an event, keep it for the log, and tell the service."""
        if len(self._events) >= _MAX_EVENTS:
            return
        numbered = event.model_copy(update={"seq": len(self._events) + 1})
        self._events.append(numbered)
        await self._mailbox.post("event", numbered.model_dump(mode="json"))


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
