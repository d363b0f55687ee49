"""The ground a batch of runs stands on: the Context API with local sandboxes on a socket, a scripted model, a repository."""

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from pydantic import SecretStr

from context_client.embedded.app import open_app
from context_client.embedded.provider import SandboxEndpoint
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes.local import LocalSandboxes, LocalSandboxSettings
from context_client.size import SandboxSize
from orchestration_service.cli.repository import pack
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.demo_repository import create_demo_repository
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from orchestration_service.sessions import SessionSettings
from tests.faults.gateway import Gateway, to_address
from tests.faults.processes import children, command, descendants
from tests.faults.replica import API_KEY, INSTANCE, MODEL_KEY
from tests.stage import bash, says

ATTACHED = "repository.tar"
"""The one file of the user."""
ANSWER = "The log has three lines."
SCRIPT = Script(
    name="three-lines",
    steps=(
        bash("echo one >> log.txt"),
        bash("echo two >> log.txt"),
        bash("echo three >> log.txt; echo report > /outputs/report.txt"),
        says(ANSWER),
    ),
)
PATCH_LINES = ["+one", "+two", "+three"]
"""What the patch of a turn adds; a step that was carried out twice shows here."""

_NOTICED_SECONDS = 10.0
_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 16384 | 1 << 18


@dataclass
class Ground:
    """What the runs of a batch share."""

    folder: Path
    context_url: str
    model_url: str
    repository: bytes
    http: httpx.AsyncClient
    gates: "GatedSandboxes"
    can_mount: bool


@dataclass
class GatedSandboxes:
    """A sandbox provider that leads the sandboxes of some users through a gateway."""

    inner: LocalSandboxes
    gates: dict[str, Gateway] = field(default_factory=dict)

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        found = await self.inner.endpoint(session_id=session_id, upn=upn, size=size)
        gate = self.gates.get(upn)
        if gate is None:
            return found
        assert found.transport is not None
        gate.forward = to_address(httpx.AsyncClient(transport=found.transport), found.base_url)
        return SandboxEndpoint(base_url=gate.url, timeout_seconds=found.timeout_seconds, size=found.size)


@asynccontextmanager
async def open_ground(folder: Path) -> AsyncIterator[Ground]:
    """Put the ground up; at its end the platform is closed."""
    can_mount = own_mounts()
    made = await asyncio.to_thread(create_demo_repository, folder / "pricing")
    sandboxes = LocalSandboxes(LocalSandboxSettings(maximum=3, spare_idle_seconds=0.2))
    settings = EmbeddedSettings(folder=folder / "context", instance_id=INSTANCE, api_key=SecretStr(API_KEY))
    model = ScriptedModel(SCRIPT, expected_key=SecretStr(MODEL_KEY), keep_requests=1)
    async with AsyncExitStack() as stack:
        gates = GatedSandboxes(await stack.enter_async_context(sandboxes))
        app = await stack.enter_async_context(open_app(settings, providers={SessionSettings().endpoint_provider: gates}))
        context = await stack.enter_async_context(serve(app))
        yield Ground(
            folder=folder,
            context_url=context.base_url,
            model_url=(await stack.enter_async_context(serve(model))).base_url,
            repository=await asyncio.to_thread(pack, made.path),
            http=await stack.enter_async_context(httpx.AsyncClient(trust_env=False)),
            gates=gates,
            can_mount=can_mount,
        )


async def left_behind() -> list[str]:
    """What is still there of a platform that was closed: processes below this one."""
    deadline = asyncio.get_running_loop().time() + _NOTICED_SECONDS
    while (found := [pid for pid in descendants(os.getpid()) if not _is_ours(pid)]) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.1)
    return [command(pid)[:120] or str(pid) for pid in found]


def own_mounts() -> bool:
    """Take a mount namespace of our own where the user may; what is mounted in it ends with this process."""
    libc = ctypes.CDLL(None)
    return os.geteuid() == 0 and libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) == 0


def mount_small_disk(folder: Path, size: str) -> bool:
    """Put a small disk at a folder."""
    return bool(ctypes.CDLL(None).mount(b"tmpfs", bytes(folder), b"tmpfs", 0, f"size={size}".encode()) == 0)


def unmount(folder: Path) -> None:
    """Take it away, also when somebody still holds a file of it."""
    ctypes.CDLL(None).umount2(bytes(folder), 2)


def _is_ours(pid: int) -> bool:
    """Whether it is the process that replicas are forked from, and not one of them."""
    return pid in children(os.getpid()) and "multiprocessing" in command(pid)
