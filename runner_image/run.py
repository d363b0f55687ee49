"""One run of a turn inside the sandbox, from the plan to the sealed outputs."""

import asyncio
import subprocess
import time
import traceback
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner_image.continuing import Continuation, continue_turn
from runner_image.difference import note_basis
from runner_image.errors import AgentError, InputError, RunnerError, SealError, WallUnavailable
from runner_image.gateway import Gateway
from runner_image.inputs import unpack_inputs
from runner_image.mailbox import Mailbox
from runner_image.places import Places
from runner_image.relay import ModelCalls, Relay
from runner_image.sealing import Ended, seal
from runner_image.seals import witnessing
from runner_image.snapshot import Base, Snapshots
from runner_image.walls import Wall, refuse_weaker
from workflow_schemas.events import Done, Event, Failed, Progress, Warned
from workflow_schemas.manifest import Beginning, EndReason
from workflow_schemas.plan import TurnPlan

if TYPE_CHECKING:
    from runner_image.agent import Agent

_MAX_EVENTS = 5000
_WRAP_UP = (
    "Note from the environment: {left:.0f} seconds are left. Stop starting new work, leave the files in a usable state, and answer now "
    "with what is done and what remains."
)


@dataclass(frozen=True)
class Ready:
    """What is made ready ahead of a run, from the start of the runner on."""

    wall: Awaitable[Wall]
    """The wall, once it has been tried out."""

    agent: Awaitable[None]
    """The agent SDK, once it has been imported."""


class Run:
    """A run in progress: inputs go into the workspace, the agent works, the outputs are sealed; a `final` is posted in every case.

    Args:
        plan: What to do.
        mailbox: The run's mailbox.
        places: Where things are.
        relay: The model endpoint inside the sandbox.
        generation: Marker of the sandbox.
        ready: What was made ready ahead.
    """

    def __init__(self, plan: TurnPlan, mailbox: Mailbox, *, places: Places, relay: Relay, generation: str, ready: Ready) -> None:
        self._plan = plan
        self._mailbox = mailbox
        self._places = places
        self._relay = relay
        self._generation = generation
        self._ready = ready
        self._calls = ModelCalls(mailbox)
        self._gateway = Gateway(self._warn)
        self._events: list[Event] = []
        self._agent: Agent | None = None
        self._stop: tuple[EndReason, str] | None = None
        self._ended = Ended()
        self._continuation = Continuation(Beginning())
        self._watching = ExitStack()

    async def execute(self) -> None:
        """Carry the run out. Whatever goes wrong inside is part of the manifest, never an exception."""
        try:
            await self._execute()
        finally:
            await asyncio.to_thread(self._watching.close)

    async def _execute(self) -> None:
        listener = asyncio.create_task(self._listen())
        ended = self._ended
        try:
            ended.wall = await self._ready.wall
            refuse_weaker(ended.wall, self._plan.minimum_wall)
            await self._prepare()
            await self._work(ended.wall)
        except WallUnavailable as error:
            ended.reason, ended.detail = "refused", str(error)
        except (InputError, SealError) as error:
            ended.reason, ended.detail = "input_error", str(error)
        except RunnerError as error:
            ended.reason, ended.detail = "agent_error", str(error)
        except OSError as error:
            ended.reason, ended.detail = "agent_error", f"the sandbox ran out of something: {error}"
        except Exception as error:  # the service waits for a `final`; an oversight here must not cost the user the workspace
            ended.reason, ended.detail = "agent_error", f"the runner failed: {error}"
            traceback.print_exc()
        finally:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener
            await self._gateway.close()
        if self._stop is not None and ended.reason in ("completed", "agent_error"):
            ended.reason, ended.detail = self._stop
        await self._finish()

    async def emit(self, event: Event) -> None:
        """Number an event, keep it for the log, and tell the service. Beyond some thousands, events are left out."""
        if len(self._events) < _MAX_EVENTS:
            numbered = event.model_copy(update={"seq": len(self._events) + 1})
            self._events.append(numbered)
            await self._mailbox.post("event", numbered.model_dump(mode="json"))

    async def _warn(self, text: str) -> None:
        if text not in self._ended.remarks:
            self._ended.remarks.append(text)
            await self.emit(Warned(at=time.time(), message=text))

    async def _prepare(self) -> None:
        places = self._places
        await self.emit(Progress(at=time.time(), step="workspace", message="Putting the files into the workspace."))
        if self._plan.fresh_workspace:
            await asyncio.to_thread(_empty, places.workspace)
        try:
            await asyncio.to_thread(_empty, places.outputs)
        except OSError as error:
            self._ended.remarks.append(f"Files of an earlier turn may be among the outputs: {error}")
        self._continuation = continuation = await asyncio.to_thread(continue_turn, self._plan, places)
        await self._tell(continuation)
        remarks = await asyncio.to_thread(unpack_inputs, self._plan.inputs, places.data, places.workspace, self._plan.limits)
        await asyncio.to_thread(note_basis, self._plan, places, continuation.basis)
        for remark in remarks:
            await self.emit(Progress(at=time.time(), step="workspace", message=remark))

    async def _tell(self, continuation: Continuation) -> None:
        self._ended.continuation = continuation
        self._ended.remarks += continuation.remarks
        if continuation.began.from_turn:
            words = f"The workspace is that of turn {continuation.began.from_turn} ({continuation.began.workspace})."
            await self.emit(Progress(at=time.time(), step="workspace", message=words))
        for remark in continuation.remarks:
            await self.emit(Warned(at=time.time(), message=remark))

    async def _work(self, wall: Wall) -> None:
        await self._ready.agent
        from runner_image.agent import agent_environment, start_agent  # imported ahead by now, in a thread

        wrapper = await asyncio.to_thread(wall.install, agent_environment(self._plan, wall.view))
        resume = self._continuation.session(self._plan)
        plan = self._plan.model_copy(update={"system_prompt": self._continuation.system_prompt(self._plan)})
        complaints: list[str] = []
        async with self._behind_relay(Snapshots(wall)) as has_started:
            try:
                async with start_agent(plan, wrapper=wrapper, emit=self.emit, resume=resume, log=complaints.append) as agent:
                    has_started.set()
                    await self.emit(Progress(at=time.time(), step="run", message="The agent is at work."))
                    await self._accompany(agent)
            except AgentError as error:
                words = " ".join(complaints[-5:])[:500]
                raise AgentError(f"{error} {words}".strip()) from error
            finally:
                self._refuse_calls("the run has ended")

    async def _accompany(self, agent: "Agent") -> None:
        clock = asyncio.create_task(self._watch_the_clock(agent))
        self._agent = agent
        try:
            if self._stop is not None:
                await agent.stop(*self._stop)
            await agent.work(self._plan.prompt)
        finally:
            self._agent = None
            clock.cancel()
            run, ended = agent.run, self._ended
            ended.answer, ended.session_id, ended.usage = run.answer, run.session_id, run.usage
            ended.reason, ended.detail = run.end_reason, run.detail

    @asynccontextmanager
    async def _behind_relay(self, snapshots: Snapshots) -> AsyncIterator[asyncio.Event]:
        """Record the workspace while the model is asked first; the agent cannot touch a file before the answer is passed on.

        Not while the agent starts: two walls that go up at once wait for each other in the kernel, twice as long as one after the other.

        Yields:
            To be set when the agent has started.
        """
        has_started = asyncio.Event()

        async def take_base() -> Base:
            await has_started.wait()
            self._ended.base = base = await snapshots.base()
            watch = witnessing(self._places.workspace, self._continuation.parent)
            self._ended.witness = await asyncio.to_thread(self._watching.enter_context, watch)
            if not self._continuation.began.from_turn:  # later turns begin with what the earlier ones have not committed
                self._ended.remarks += base.remarks
            return base

        base = asyncio.create_task(take_base())

        async def snapshot_taken() -> None:
            await asyncio.wait([base])

        relay = self._relay
        relay.calls, relay.streams, relay.ready = self._calls, self._gateway, snapshot_taken
        try:
            yield has_started
        finally:
            has_started.set()
            if relay.calls is self._calls:
                relay.calls = relay.streams = relay.ready = None
            await asyncio.wait([base])
        base.result()

    async def _watch_the_clock(self, agent: "Agent") -> None:
        limits = self._plan.limits
        await asyncio.sleep(limits.soft_seconds)
        left = limits.hard_seconds - limits.soft_seconds
        await self.emit(Warned(at=time.time(), message=f"The time is nearly up: the agent was told to wrap up within {left:.0f} s."))
        with suppress(RunnerError):
            await agent.say(_WRAP_UP.format(left=left))
        await asyncio.sleep(left)
        self._refuse_calls("the time of this turn is over")
        await agent.stop("deadline", f"The time limit of {limits.hard_seconds:.0f} s was reached.")

    async def _listen(self) -> None:
        while True:
            message = await self._mailbox.receive()
            if message.kind in ("model_answer", "resend"):
                await self._calls.take(message)
            elif message.kind == "say" and self._agent is not None:
                await self._agent.say(str(message.body.get("text", "")))
            elif message.kind == "model_access":
                await self._gateway.take(message.body)
            elif message.kind == "stop":
                self._stop = (message.body["reason"], str(message.body.get("detail", "")))
                self._refuse_calls("the run was stopped")
                if self._agent is not None:
                    await self._agent.stop(*self._stop)

    def _refuse_calls(self, reason: str) -> None:
        self._gateway.stop()
        self._calls.refuse(reason)

    async def _finish(self) -> None:
        ended = self._ended
        await self.emit(Progress(at=time.time(), step="seal", message="Sealing the outputs."))
        if ended.session_id:
            await self.emit(Done(at=time.time(), session_id=ended.session_id, turns=ended.usage.model_calls))
        else:
            await self.emit(Failed(at=time.time(), error=ended.detail))
        manifest = await seal(self._plan, self._places, self._generation, ended, self._events)
        await self._mailbox.post("final", {"manifest": manifest.model_dump(mode="json")})


def _empty(folder: Path) -> None:
    """Remove everything in a folder; what an agent left there may be deeper than a path can name, and forbidden to its owner.

    Raises:
        OSError: Something is still there.
    """
    left = [str(entry) for entry in folder.iterdir()]
    if left:  # the system's tools walk by descriptor, follow no link and know no depth that is too deep
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
        done = subprocess.run(["rm", "-rf", "--", *left], stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise OSError(f"{folder} cannot be emptied: {done.stderr.strip()[-300:]}")
