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
from typing import Self

import anyio
from anyio import to_thread

from context_client.embedded.provider import SandboxEndpoint
from context_client.sandboxes.errors import SandboxUnavailable
from context_client.sandboxes.keeping import KeptSandboxes, Key
from context_client.sandboxes.rundir import open_run_directory
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
_ENDED_FOR_SECONDS = 300.0


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
        self._kept: KeptSandboxes[_Running] = KeptSandboxes(
            "containers",
            maximum=settings.maximum,
            spare_idle_seconds=settings.spare_idle_seconds,
            why_gone=_why_gone,
            end=self._end,
        )
        self._starts = anyio.Semaphore(settings.concurrent_starts)
        self._names: set[str] = set()
        self._slots = itertools.count()
        self._salt = secrets.token_bytes(32)
        self._log = logging.getLogger(__name__)
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
            self._ours = Ownership(owner=str(self._directory), place=await to_thread.run_sync(this_place))
            await self._sweep()
            stack.push_async_callback(self._sweep_at_the_end)
            await stack.enter_async_context(self._kept.open(self._watch, self._keep_sweeping))
            yield self

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
        return await self._kept.endpoint(key, partial(self._start, key, size))

    def describe(self) -> ContainerFacts:
        """Say what kind of sandbox this is, for a receipt."""
        return self._facts

    async def _start(self, key: Key, size: SandboxSize | None) -> _Running:
        limits = self._settings.limits.sized(size)
        async with self._starts:
            container = await self._start_container(key, limits)
        transport = SandboxTransport(container)
        seconds = self._settings.call_timeout_seconds
        endpoint = SandboxEndpoint(base_url="http://sandbox", transport=transport, timeout_seconds=seconds, size=limits.size)
        return _Running(container=container, transport=transport, endpoint=endpoint)

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

    async def _watch(self) -> None:
        """Notice containers that ended and end those that idle, once a second."""
        while True:
            await anyio.sleep(_TICK_SECONDS)
            await self._kept.notice_all(self._settings.cooldown_seconds)

    async def _end(self, running: _Running, reason: str) -> None:
        container = running.container
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

    async def _sweep_at_the_end(self) -> None:
        with anyio.CancelScope(shield=True):  # the engine's patience bounds it
            try:
                await self._sweep()  # what could not be removed before
            except (EngineSilent, EngineRefused) as error:
                self._log.warning("Ended containers may be left; the next start removes them. %s", error)


async def _why_gone(running: _Running) -> str | None:
    if running.container.is_cut:
        await running.container.settle(_SETTLE_SECONDS)
    return running.container.ended


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
