"""One run: a turn in which one thing goes wrong, and all that was seen of it."""

import asyncio
import shutil
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from context_client import ContextClient, UserIdentity
from orchestration_service.cli.client import Caller
from tests.faults.choosing import Fault
from tests.faults.gateway import Gateway, Passed, Request, open_gateway, to_address
from tests.faults.ground import ATTACHED, Ground, mount_small_disk, unmount
from tests.faults.judging import Verdict, judge
from tests.faults.poller import Poller, headers_for
from tests.faults.processes import AGENT, BALLAST, RUNNER, SERVER, alive, below, command, fill, inside, kill, named, newest_sandbox
from tests.faults.replica import API_KEY, INSTANCE, Replica, ReplicaSetup, start_replica
from tests.faults.weather import Weather

ENDS_WITHIN_SECONDS = 120.0
"""How long a turn may take in which something went wrong; besides what an outage itself lasts."""
CORRECTED_WITHIN_SECONDS = 10.0
SETTLED_WITHIN_SECONDS = 6.0
_DISK = "24m"


@dataclass
class Scene:
    """A run under way."""

    fault: Fault
    ground: Ground
    folder: Path
    upn: str
    context_gate: Gateway
    model_gate: Gateway
    sandbox_gate: Gateway | None
    poller: Poller
    replicas: list[Replica] = field(default_factory=list)
    sandbox: int | None = None
    happened: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    below: set[tuple[int, int]] = field(default_factory=set)
    """Processes that replicas have started, where they make their own sandboxes."""

    @property
    def is_embedded(self) -> bool:
        """Whether service, Context API and sandboxes are one process tree, as on one machine."""
        return self.fault.kind == "platform_killed"

    @property
    def records(self) -> Path:
        """The database of the Context API."""
        return (self.folder / "data" if self.is_embedded else self.ground.folder) / "context" / "records.sqlite3"

    async def start_replica(self, name: str, fault_at: int = 0) -> Replica:
        replica = await start_replica(
            ReplicaSetup(
                name=name,
                folder=self.folder,
                context_url="" if self.is_embedded else self.context_gate.url,
                model_url=self.model_gate.url,
                fault=self.fault,
                fault_at=fault_at,
            )
        )
        self.replicas.append(replica)
        return replica

    async def at_call(self, passed: Passed, moment: str) -> None:
        """Do what a fault has to do around a call of the Context API."""
        if self.sandbox is None and passed.call == "upload" and moment == "after":
            self.sandbox = await asyncio.to_thread(newest_sandbox)
        fault = self.fault
        if fault.damage or (passed.call, passed.number, moment) != (fault.call, fault.at, fault.moment) or self.sandbox is None:
            return
        self.happened.append(f"{fault.kind} {moment} {passed.call} {passed.number}")
        if fault.kind in ("sandbox_deleted", "sandbox_and_service"):
            if SERVER in command(self.sandbox):  # numbers of processes are used again
                kill(self.sandbox)
        elif fault.kind == "runner_killed":
            for pid in await asyncio.to_thread(named, self.sandbox, RUNNER):
                kill(pid)
        elif fault.kind == "sandbox_full":
            place = await asyncio.to_thread(inside, self.sandbox, fault.place)
            if place is not None:
                with suppress(OSError):  # a folder that went away with its sandbox
                    await asyncio.to_thread(fill, place)


async def play(fault: Fault, ground: Ground) -> Verdict:
    """Play one run and judge it."""
    began = time.monotonic()
    async with _scene(fault, ground) as scene:
        await _act(scene)
        await _settle(scene)
        for replica in scene.replicas:
            if trouble := await replica.end():
                scene.problems.append(trouble)
        await _look_below(scene)
        return await judge(scene, time.monotonic() - began)


async def _act(scene: Scene) -> None:
    """Start the replicas and a turn, and follow it to its end."""
    fault, ground = scene.fault, scene.ground
    starting = [scene.start_replica("a", fault.again_at if fault.kind == "sandbox_and_service" else 0 if fault.call else fault.at)]
    if not scene.is_embedded:
        starting.append(scene.start_replica("b", fault.again_at if fault.kind == "both_killed" else 0))
    await asyncio.gather(*starting)
    scene.replicas.sort(key=lambda replica: replica.name)
    scene.poller.replicas = scene.replicas
    body = await _completion(scene)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_keep_going(scene))
        if await scene.poller.start(ground.http, body):
            await scene.poller.until_ended(ground.http, ENDS_WITHIN_SECONDS + max(0.0, min(fault.seconds, 40.0)))
            if scene.poller.status == "Failed" and not fault.destroys_work:
                await scene.poller.until_ended(ground.http, CORRECTED_WITHIN_SECONDS, enough=lambda: scene.poller.status == "Completed")
        else:
            scene.problems.append("the completion was never accepted")
        watching.cancel()


async def _completion(scene: Scene) -> dict[str, Any]:
    """Attach the repository to a new conversation, and return the completion that works on it."""
    ground = scene.ground
    identity = UserIdentity(name="Ann", user_name=scene.upn, upn=scene.upn)
    conversation = f"c-{uuid.uuid4()}"
    url = f"{scene.replicas[0].url}/context" if scene.is_embedded else ground.context_url
    async with ContextClient(base_url=url, api_key=API_KEY, instance_id=INSTANCE) as context:
        record = await context.upload_conversation_file(
            identity, conversation, "claude-code", ATTACHED, ground.repository, "application/x-tar"
        )
        return Caller(ground.http, context, identity, INSTANCE).completion(conversation, "Write three lines.", [record], model="scripted")


async def _look_below(scene: Scene) -> None:
    """Find what replicas with sandboxes of their own have left running."""
    deadline = time.monotonic() + SETTLED_WITHIN_SECONDS
    while (left := [process for process in scene.below if alive(process)]) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    scene.problems += [f"left running: {command(pid)[:120] or pid}" for pid, _ in left]


async def _keep_going(scene: Scene) -> None:
    """What an operator's platform does by itself: start a replica anew when none is left, free a disk that is full."""
    ballast = scene.folder / "data" / BALLAST
    full = scene.folder / "full"
    while True:
        await asyncio.sleep(0.05)
        for replica in scene.replicas:
            if not replica.alive and f"replica {replica.name} died" not in scene.happened:
                scene.happened.append(f"replica {replica.name} died")
            if scene.is_embedded and replica.alive:
                scene.below |= await asyncio.to_thread(below, replica.pid)
        if not any(replica.alive for replica in scene.replicas) and len(scene.replicas) < 4:
            await asyncio.sleep(0.3)
            await scene.start_replica("abcd"[len(scene.replicas)])
        if full.exists():
            scene.happened.append("the disk was full")
            full.unlink()
            await asyncio.sleep(scene.fault.seconds)
            ballast.unlink(missing_ok=True)


async def _settle(scene: Scene) -> None:
    """Wait until nothing is left of the agent, and let every living replica tell the end."""
    poller = scene.poller
    deadline = time.monotonic() + SETTLED_WITHIN_SECONDS
    for replica in scene.replicas:
        while poller.operation_id and replica.alive and replica.url and time.monotonic() < deadline:
            if await poller.poll(scene.ground.http, replica):
                break
    if scene.sandbox is not None:
        while found := await asyncio.to_thread(named, scene.sandbox, AGENT):
            if time.monotonic() > deadline:
                scene.problems.append(f"{len(found)} processes of the agent still run in the sandbox")
                break
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _scene(fault: Fault, ground: Ground) -> AsyncIterator[Scene]:
    upn = f"{fault.kind}.{fault.seed}.{uuid.uuid4().hex[:6]}@example.com"
    folder = ground.folder / upn.partition("@")[0]
    data = folder / "data"
    data.mkdir(parents=True)
    Weather.begin(folder / "weather")
    on_disk = fault.kind == "disk_full" and ground.can_mount and mount_small_disk(data, _DISK)
    context = Gateway("context", _context_call, to_address(ground.http, ground.context_url))
    model = Gateway("model", _model_call, to_address(ground.http, ground.model_url, skip=1))
    sandbox = Gateway("sandbox", _sandbox_call, _nowhere) if fault.kind == "sandbox_call" else None
    identity = UserIdentity(name="Ann", user_name=upn, upn=upn)
    poller = Poller(headers_for(identity.to_header()), [], fault.disturbs_polls)
    scene = Scene(fault, ground, folder, upn, context, model, sandbox, poller)
    context.watch = scene.at_call
    for gate, kind in ((context, "context_call"), (model, "model_call"), (sandbox, "sandbox_call")):
        if gate is not None and fault.kind == kind:
            gate.fault = fault
    async with AsyncExitStack() as stack:
        for gate in (context, model, *([sandbox] if sandbox else [])):
            await stack.enter_async_context(open_gateway(gate))
        if sandbox is not None:
            ground.gates.gates[upn] = sandbox
        try:
            yield scene
        finally:
            ground.gates.gates.pop(upn, None)
            for replica in scene.replicas:
                replica.kill()
            if on_disk:
                unmount(data)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _nowhere(request: Request) -> Any:
    raise httpx.ConnectError("the sandbox is not known yet")


def _context_call(method: str, target: str) -> str:
    words = {"codeSessions": "create", "uploadFiles": "upload", "executeCode": "execute", "downloadFiles": "download"}
    last = target.partition("?")[0].rsplit("/", 1)[-1]
    return words.get(last, "content" if "/files/" in target and method == "GET" else "other")


def _sandbox_call(method: str, target: str) -> str:
    path = target.partition("?")[0]
    words = {"/code/execute": "execute", "/files/delete": "delete", "/files/upload": "upload", "/files/download": "download"}
    return next((word for end, word in words.items() if path.endswith(end)), "list" if path.endswith("/files") else "other")


def _model_call(method: str, target: str) -> str:
    return "messages" if target.partition("?")[0].endswith("/v1/messages") else "other"
