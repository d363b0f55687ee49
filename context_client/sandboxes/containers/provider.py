"""Sandboxes in containers of this machine's engine, one per user and session, started on first use.

The same behaviour as the local sandboxes: one that idles is destroyed and the next use silently starts an empty one;
one that ended for a reason says so once. The engine is needed to start and to remove a container, not to use it.
"""

import itertools
import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Self, cast

import anyio
from anyio import to_thread

from context_client.embedded.provider import SandboxEndpoint
from context_client.sandboxes.errors import SandboxEnded, SandboxesClosed, SandboxPoolFull, SandboxUnavailable
from context_client.sandboxes.rundir import open_run_directory
from context_client.sandboxes.sandbox import Sandbox
from context_client.sandboxes.transport import SandboxTransport
from context_client.size import SandboxSize

from .container import Container, Ground, new_name, remove, start_container
from .engine import Engine, open_engine
from .errors import EngineRefused, EngineSilent
from .judge import engine_shortcomings, image_shortcomings
from .orphans import ended_before, judge_container, owner_lives, this_place
from .plan import LABEL, Ownership, labels, session_label
from .settings import ContainerFacts, ContainerLimits, ContainerSandboxSettings

_TICK_SECONDS = 1.0
_SETTLE_SECONDS = 1.0
_MAX_REASONS = 1000
_MAX_DIRECTORY_BYTES = 90  # a socket's whole path may have 107
_ENDED_FOR_SECONDS = 300.0

Key = tuple[str, str]


@dataclass(kw_only=True)
class _Running:
    """A sandbox in use."""

    container: Container
    transport: SandboxTransport
    endpoint: SandboxEndpoint


class ContainerSandboxes(anyio.AsyncContextManagerMixin):
    """Sandboxes in containers; a `SandboxProvider`, to be used as an async context manager.

    Raises:
        SandboxUnavailable: On entering, when there is no engine, or no image, or one that may not be used.
    """

    def __init__(self, settings: ContainerSandboxSettings) -> None:
        self._settings = settings
        self._running: dict[Key, _Running] = {}
        self._starting: dict[Key, anyio.Lock] = {}
        self._starts = anyio.Semaphore(settings.concurrent_starts)
        self._reserved = 0
        self._reasons: dict[Key, str] = {}
        self._names: set[str] = set()
        self._slots = itertools.count()
        self._salt = secrets.token_bytes(32)
        self._log = logging.getLogger(__name__)
        self._closed = True
        self._ground: Ground
        self._facts: ContainerFacts
        self._ours: Ownership
        self._directory: Path

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        settings = self._settings
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(open_engine(settings.engine_url, settings.engine_patience_seconds))
            version = await _usable_engine(engine)
            self._ground = Ground(engine=engine, settings=settings, image_id=await _usable_image(engine, settings))
            self._facts = _facts(self._ground, version)
            self._directory = await stack.enter_async_context(open_run_directory(settings.run_directory))
            if len(os.fsencode(self._directory)) > _MAX_DIRECTORY_BYTES:
                raise SandboxUnavailable(
                    f"the path {str(self._directory)!r} is too long for a Unix socket.", advice=("Set a shorter run directory.",)
                )
            self._ours = Ownership(owner=str(self._directory), place=await to_thread.run_sync(this_place))
            await self._sweep()
            self._closed = False
            stack.push_async_callback(self._end_all)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._watch)
                    group.start_soon(self._keep_sweeping)
                    try:
                        yield self
                    finally:
                        self._closed = True
                        group.cancel_scope.cancel()
            except BaseExceptionGroup as errors:
                if len(errors.exceptions) > 1:
                    raise
                raise errors.exceptions[0] from None  # the caller's own error, which the group has wrapped

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        """Give the way to a session's container, starting it on first use; concurrent callers share one start.

        Args:
            session_id: The code session.
            upn: Whose it is; another user's session of the same name is another container.
            size: What it shall have if it is started now; one that runs stays as it is.

        Raises:
            SandboxPoolFull: As many run as may.
            SandboxStartFailed: It did not come up, or its server is of another version.
            EngineSilent: The container engine does not answer.
            SandboxEnded: It ended for a reason since its last use; told once.
            SandboxesClosed: This provider is closed.
        """
        key = (upn, session_id)
        lock = self._starting.setdefault(key, anyio.Lock())
        async with lock:
            try:
                return await self._find_or_start(key, size)
            finally:
                if lock.statistics().tasks_waiting == 0:
                    self._starting.pop(key, None)

    def describe(self) -> ContainerFacts:
        """Say what kind of sandbox this is, for a receipt."""
        return self._facts

    async def _find_or_start(self, key: Key, size: SandboxSize | None) -> SandboxEndpoint:
        if self._closed:
            raise SandboxesClosed("The containers are closed; the service is stopping.")
        running = self._running.get(key)
        if running is not None:
            await self._notice(key, running)
        if (reason := self._reasons.pop(key, None)) is not None:
            raise SandboxEnded(reason)
        running = self._running.get(key) or await self._start(key, size)
        running.transport.touch()
        return running.endpoint

    async def _start(self, key: Key, size: SandboxSize | None) -> _Running:
        if len(self._running) + self._reserved >= self._settings.maximum and not await self._make_room():
            raise SandboxPoolFull(self._settings.maximum)
        self._reserved += 1
        limits = self._settings.limits.sized(size)
        try:
            async with self._starts:
                container = await self._start_container(key, limits)
        finally:
            self._reserved -= 1
        if self._closed:  # meanwhile; nobody else would end it
            await self._end(container, "the service stopped.")
            raise SandboxesClosed("The containers were closed while this one started; the service is stopping.")
        # The transport asks its sandbox for nothing but its socket and its end, which a container has too.
        transport = SandboxTransport(cast(Sandbox, container))
        seconds = self._settings.call_timeout_seconds
        endpoint = SandboxEndpoint(base_url="http://sandbox", transport=transport, timeout_seconds=seconds, size=limits.size)
        running = self._running[key] = _Running(container=container, transport=transport, endpoint=endpoint)
        return running

    async def _start_container(self, key: Key, limits: ContainerLimits) -> Container:
        name = new_name()
        session = session_label(self._salt, *key)
        marks = labels(self._settings.instance_id, self._ours, session, datetime.now(UTC))
        self._names.add(name)
        try:
            ground = replace(self._ground, settings=replace(self._settings, limits=limits))
            return await start_container(ground, name=name, directory=self._directory / str(next(self._slots)), marks=marks)
        except BaseException:
            with anyio.CancelScope(shield=True):
                self._let_go(name, await remove(self._ground.engine, name))
            raise

    async def _make_room(self) -> bool:
        """End the container that has idled longest, if it surely idles: a turn at work asks for something every few seconds."""
        idle = {key: running.transport.idle_seconds() for key, running in self._running.items()}
        longest = max(idle, key=lambda key: idle[key], default=None)
        if longest is None or idle[longest] < self._settings.spare_idle_seconds:
            return False
        await self._end(self._running.pop(longest).container, "it was idle and another session needed its place.")
        return True

    async def _watch(self) -> None:
        """Notice containers that ended and end those that idle, once a second."""
        while True:
            await anyio.sleep(_TICK_SECONDS)
            for key, running in list(self._running.items()):
                await self._notice(key, running)
                if self._running.get(key) is running and running.transport.idle_seconds() > self._settings.cooldown_seconds:
                    del self._running[key]
                    await self._end(running.container, "it was idle.")

    async def _notice(self, key: Key, running: _Running) -> None:
        """Drop a container that ended and keep the reason for the next caller."""
        if running.container.is_cut:
            await running.container.settle(_SETTLE_SECONDS)
        reason = running.container.ended
        if reason is None or self._running.get(key) is not running:
            return
        del self._running[key]
        self._reasons[key] = reason  # before the next await: a caller that comes meanwhile must not miss it
        if len(self._reasons) > _MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]
        await self._end(running.container, reason)

    async def _end(self, container: Container, reason: str) -> None:
        await container.end(reason)
        self._let_go(container.name, container.is_gone)

    def _let_go(self, name: str, is_gone: bool) -> None:
        self._names.discard(name)  # from now on the sweep takes it for abandoned
        if not is_gone:
            self._log.warning("The container %s could not be removed; it is tried again later.", name)

    async def _keep_sweeping(self) -> None:
        while True:
            await anyio.sleep(self._settings.sweep_seconds)
            try:
                await self._sweep()
            except (EngineSilent, EngineRefused) as error:
                self._log.warning("Abandoned containers were not looked for: %s", error)

    async def _sweep(self) -> None:
        """Remove the containers of our instance that nobody needs any more."""
        engine, now = self._ground.engine, datetime.now(UTC)
        listing = await engine.listing(f"{LABEL}={self._settings.instance_id}")
        judge = partial(judge_container, ours=self._ours, known=frozenset(self._names), lives=owner_lives, now=now)
        for found, verdict in await to_thread.run_sync(lambda: [(str(record["Id"]), judge(record)) for record in listing]):
            if verdict == "ask when it ended":
                try:
                    state = (await engine.inspect(found))["State"]
                except EngineRefused:
                    continue  # gone meanwhile
                verdict = "orphan" if ended_before(state, now - timedelta(seconds=_ENDED_FOR_SECONDS)) else "keep"
            if verdict == "orphan" and await remove(engine, found):
                self._log.info("Removed the abandoned container %s.", found[:12])

    async def _end_all(self) -> None:
        with anyio.CancelScope(shield=True):  # each end has its own deadline
            async with anyio.create_task_group() as group:
                for running in self._running.values():
                    group.start_soon(self._end, running.container, "the service stopped.")
            self._running.clear()
            try:
                await self._sweep()  # what could not be removed before
            except (EngineSilent, EngineRefused) as error:
                self._log.warning("Ended containers may be left; the next start removes them. %s", error)


def _facts(ground: Ground, version: str) -> ContainerFacts:
    return ContainerFacts(
        kind="container",
        version=version,
        image=ground.settings.image,
        image_id=ground.image_id,
        network="none",
        separate_user=ground.settings.user != os.geteuid(),
        limits=ground.settings.limits,
        enforced=dict.fromkeys(("places", "open_files", "processes", "memory", "files", "cpu"), "kernel"),
    )


async def _usable_engine(engine: Engine) -> str:
    """Look whether the engine keeps what we promise, and give its name and version."""
    version, info = await engine.version(), await engine.info()
    steps = engine_shortcomings(info, version=version, has_swap=await to_thread.run_sync(_has_swap))
    if steps:
        raise SandboxUnavailable(f"the container engine ({version}) cannot keep a sandbox in its limits.", advice=steps)
    return version


async def _usable_image(engine: Engine, settings: ContainerSandboxSettings) -> str:
    """Look whether the image may be used, and give its id."""
    try:
        image = await engine.image(settings.image)
    except EngineRefused as error:
        if error.status != 404:
            raise
        raise SandboxUnavailable(
            f"the container engine has no image {settings.image!r}, and none is ever pulled.",
            advice=(
                "Build it from this project's runner_image folder, or load one that was built elsewhere: docker load -i FILE",
                "Or name one that is there: docker images",
            ),
        ) from error
    if steps := image_shortcomings(image, settings.limits):
        raise SandboxUnavailable(f"the image {settings.image!r} may not be used.", advice=steps)
    return str(image["Id"])


def _has_swap() -> bool:
    return len(Path("/proc/swaps").read_text(encoding="utf-8").splitlines()) > 1
