"""Sandboxes on this machine, each behind bubblewrap, one per user and session, started on first use.

It behaves like the platform's session pools: a sandbox that idles is destroyed and the next use silently starts an
empty one. Unlike there, one that was ended for a reason says so once.
"""

import compileall
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Self

import anyio
from anyio import to_thread

from context_client.embedded.provider import SandboxEndpoint
from context_client.size import SandboxSize

from .advice import advise, read_settings
from .bubblewrap import BUBBLEWRAP, SOURCES, Source
from .errors import SandboxUnavailable
from .groups import ControlGroups, find_groups, remove
from .keeping import KeptSandboxes
from .launch import Launch, plan_launch, write_synthetic_files
from .limits import SandboxLimits
from .rundir import open_run_directory
from .runtime import Runtime, find_runtime
from .sandbox import Sandbox, one_shot, start_sandbox
from .transport import SandboxTransport
from .watchdog import broken_limit, measure

_TICK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class LocalSandboxSettings:
    """What an administrator may choose for sandboxes on this machine."""

    maximum: int = 20
    """How many sandboxes may run at the same time."""

    cooldown_seconds: float = 300.0
    """How long a sandbox may idle before it is destroyed; 300 on the platform."""

    spare_idle_seconds: float = 15.0
    """How long a sandbox must have idled to be ended early when all places are taken and another session needs one."""

    execution_timeout_seconds: float = 100.0
    """Time limit of one execution inside."""

    call_timeout_seconds: float = 600.0
    """How long one call to a sandbox may take."""

    prewarm_runner: bool = True
    """Start the runner with the sandbox, so that its slow imports are done before the work arrives."""

    limits: SandboxLimits = field(default_factory=SandboxLimits)
    """What each sandbox may use."""

    run_directory: Path | None = None
    """Where sockets are kept; by default the user's runtime directory or the temporary one."""


@dataclass(frozen=True, kw_only=True)
class SandboxFacts:
    """What kind of sandbox the work ran in, for a receipt."""

    kind: Literal["bubblewrap"]
    """How it is made."""

    version: str
    """Version of what makes it."""

    network: Literal["none"]
    """What it can reach."""

    separate_user: bool
    """Whether each sandbox runs as a user of its own on the host."""

    limits: SandboxLimits
    """What it may use."""

    enforced: dict[str, str]
    """What enforces each limit: the kernel at once, or the watchdog within a second."""


@dataclass(kw_only=True)
class _Running:
    """A sandbox in use."""

    sandbox: Sandbox
    transport: SandboxTransport
    endpoint: SandboxEndpoint
    limits: SandboxLimits


class LocalSandboxes(anyio.AsyncContextManagerMixin):
    """The sandboxes of this machine; a `SandboxProvider`, to be used as an async context manager.

    Entering it tries a sandbox out.

    Raises:
        SandboxUnavailable: On entering, when bubblewrap cannot run here; the message says what to change.
    """

    def __init__(self, settings: LocalSandboxSettings | None = None) -> None:
        self._settings = settings or LocalSandboxSettings()
        self._kept: KeptSandboxes[_Running] = KeptSandboxes(
            "local sandboxes",
            maximum=self._settings.maximum,
            spare_idle_seconds=self._settings.spare_idle_seconds,
            why_gone=_why_gone,
            end=_end,
        )
        self._slots = itertools.count()
        self._runtime: Runtime
        self._groups: ControlGroups | None = None
        self._directory: Path
        self._etc: tuple[Source, ...]

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with AsyncExitStack() as stack:
            self._runtime = await to_thread.run_sync(_find_and_compile)
            self._groups = await to_thread.run_sync(find_groups)
            self._directory = await stack.enter_async_context(open_run_directory(self._settings.run_directory))
            self._etc = await to_thread.run_sync(write_synthetic_files, self._directory)
            await self._probe()
            await stack.enter_async_context(self._kept.open(self._watch))
            yield self

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        """Give the way to a session's sandbox, starting it on first use; concurrent callers share one start.

        Args:
            session_id: The code session.
            upn: Whose it is; another user's session of the same name is another sandbox.
            size: What it shall have if it is started now; one that runs stays as it is.

        Raises:
            SandboxPoolFull: As many run as may.
            SandboxStartFailed: It did not come up.
            SandboxEnded: It was ended for a reason since its last use; told once.
            SandboxesClosed: This provider is closed.
        """
        return await self._kept.endpoint((upn, session_id), partial(self._start, size))

    def describe(self) -> SandboxFacts:
        """Say what kind of sandbox this is, for a receipt."""
        return SandboxFacts(
            kind="bubblewrap",
            version=".".join(map(str, self._runtime.bubblewrap.version)),
            network="none",
            separate_user=os.geteuid() == 0,
            limits=self._settings.limits,
            enforced={
                "places": "kernel",
                "open_files": "kernel",
                "processes": "kernel",
                "memory": "watchdog",
                "files": "watchdog",
                "cpu": "kernel" if self._groups is not None else "priority only",
            },
        )

    async def _start(self, size: SandboxSize | None) -> _Running:
        limits = self._settings.limits.sized(size)
        sandbox = await self._start_sandbox(next(self._slots), limits)
        transport = SandboxTransport(sandbox)
        seconds = self._settings.call_timeout_seconds
        endpoint = SandboxEndpoint(base_url="http://sandbox", transport=transport, timeout_seconds=seconds, size=self._held(limits))
        return _Running(sandbox=sandbox, transport=transport, endpoint=endpoint, limits=limits)

    async def _start_sandbox(self, slot: int, limits: SandboxLimits) -> Sandbox:
        group = None
        if limits.cpus is not None and self._groups is not None:
            group = await to_thread.run_sync(self._groups.make, str(slot), limits)
        try:
            return await start_sandbox(self._launch(slot, limits, group), self._directory / f"{slot}.sock")
        except BaseException:
            if group is not None:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(remove, group)
            raise

    def _held(self, limits: SandboxLimits) -> SandboxSize:
        """What of the limits is really held."""
        return limits.size if self._groups is not None else limits.size.model_copy(update={"cpus": None})

    def _launch(self, slot: int, limits: SandboxLimits, group: Path | None) -> Launch:
        words = ["-P", "-m", "runner_image.server", "--fd", "{fd}", "--user-processes", str(limits.processes)]
        words += ["--timeout-seconds", str(self._settings.execution_timeout_seconds)]
        if self._settings.prewarm_runner:
            words.append("--prewarm-runner")
        return plan_launch(
            runtime=self._runtime,
            etc=self._etc,
            limits=limits,
            slot=slot,
            python=self._runtime.python,
            server_words=tuple(words),
            group=group,
        )

    async def _probe(self) -> None:
        """Start the smallest sandbox with another one inside it, as the agent's own wall will be."""
        launch = plan_launch(
            runtime=self._runtime,
            etc=self._etc,
            limits=self._settings.limits,
            slot=next(self._slots),
            python=f"{BUBBLEWRAP}/bwrap",
            server_words=("--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", self._runtime.python, "-c", ""),
        )
        async with one_shot(launch) as (status, said):
            if status != 0:
                raise await to_thread.run_sync(_unavailable, self._runtime, f"bubblewrap fails ({status}): {said}")

    async def _watch(self) -> None:
        """End sandboxes that idle or break a limit, once a second."""
        while True:
            await anyio.sleep(_TICK_SECONDS)
            await self._kept.notice_all(self._settings.cooldown_seconds)
            watched = {running.sandbox.pid: running.limits for running in self._kept.running.values()}
            usages = await to_thread.run_sync(measure, watched) if watched else {}
            for key, running in list(self._kept.running.items()):
                usage = usages.get(running.sandbox.pid)
                reason = broken_limit(usage, running.limits) if usage is not None else None
                if reason is not None:
                    await self._kept.lose(key, reason)


async def _why_gone(running: _Running) -> str | None:
    return running.sandbox.ended


async def _end(running: _Running, reason: str) -> None:
    await running.sandbox.end(reason)


def _find_and_compile() -> Runtime:
    """Find the runtime, and compile our modules once: inside, where they are read-only, nothing could be kept."""
    runtime = find_runtime()
    for source in runtime.sources:
        if source.inside.startswith(SOURCES):
            compileall.compile_dir(source.host, quiet=2)
    return runtime


def _unavailable(runtime: Runtime, reason: str) -> SandboxUnavailable:
    container = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    return SandboxUnavailable(
        reason,
        advice=advise(read_settings(), binary=runtime.bubblewrap.path, in_container=container, as_root=os.geteuid() == 0),
    )
