"""One running container: its lifeline, the socket to the server inside it, and its end."""

import contextlib
import json
import secrets
import shutil
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
from anyio import to_thread

from context_client.sandboxes.errors import SandboxStartFailed
from context_client.sandboxes.health import health_differences
from context_client.sandboxes.transport import over_socket

from .engine import Engine
from .errors import EngineRefused, EngineSilent, SandboxMismatch
from .inside import MEETING_SOCKET, hand_over, is_cut, listen
from .judge import why_ended
from .plan import container_config
from .settings import ContainerLimits, ContainerSandboxSettings

_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.25
_STATE_SECONDS = 3.0
_SAID_CHARACTERS = 2000


def new_name() -> str:
    """Choose a name for a container; it says nothing about whose it is."""
    return f"claude-code-{secrets.token_hex(8)}"


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a container is started on."""

    engine: Engine
    """Runs it."""

    settings: ContainerSandboxSettings
    """What the administrator chose."""

    image_id: str
    """The image, by content."""


class Container:
    """A container that was started; it ends by `end`, by itself, or with this process."""

    def __init__(self, ground: Ground, *, name: str, directory: Path, line: socket.socket) -> None:
        self._engine = ground.engine
        self._limits: ContainerLimits = ground.settings.limits
        self._directory = directory
        self._line = line
        self._reason: str | None = None
        self.is_gone = False
        """Whether the engine has confirmed, after an end, that nothing is left; its processes end in any case."""
        self.name = name
        """The engine's name for it."""
        self.socket_path = directory / "s"
        """Where its server is reached."""

    @property
    def ended(self) -> str | None:
        """Why it is gone, in a sentence; None while it runs and while nobody has noticed."""
        return self._reason

    @property
    def is_cut(self) -> bool:
        """Whether it is ending by itself; `settle` tells why."""
        return self._reason is None and is_cut(self._line)

    async def settle(self, seconds: float) -> str | None:
        """Wait a moment for an end that is under way, after its connection broke; give the reason like `ended`.

        Args:
            seconds: How long to wait for signs of an end.
        """
        with anyio.move_on_after(seconds):
            # several callers wait, and only one may wait for the socket itself
            while self._reason is None and not is_cut(self._line):  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
        if self.is_cut:
            reason = await self._look_why()
            self._reason = self._reason or reason
        return self._reason

    async def end(self, reason: str) -> None:
        """Kill and remove it with everything it has; repeating is harmless. Cancellation waits for it.

        Args:
            reason: Told to those who still use it.
        """
        self._reason = self._reason or reason
        self._line.close()
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_remove_directory, self._directory)
            self.is_gone = await remove(self._engine, self.name)

    async def _look_why(self) -> str:
        """The engine takes a moment to notice an end."""
        state: Mapping[str, object] = {}
        problem = "it stopped, and the container engine takes too long to say why."
        with anyio.move_on_after(_STATE_SECONDS):
            try:
                while not state or state.get("Running"):
                    state = (await self._engine.inspect(self.name))["State"]
                    await anyio.sleep(_POLL_SECONDS)
            except (EngineRefused, EngineSilent) as error:
                is_gone = isinstance(error, EngineRefused) and error.status == 404
                problem = "it was removed from outside." if is_gone else f"it stopped, and why is unknown. {error}"
        return why_ended(state, self._limits) if state else problem


async def remove(engine: Engine, name: str) -> bool:
    """Remove a container; says whether that is sure."""
    try:
        await engine.remove(name)
    except (EngineRefused, EngineSilent):
        return False
    return True


async def start_container(ground: Ground, *, name: str, directory: Path, marks: Mapping[str, str]) -> Container:
    """Start a container and wait until its server answers. The caller removes what is left when this fails.

    Args:
        ground: What it stands on.
        name: From `new_name`.
        directory: A path that does not exist yet, for its sockets.
        marks: Its labels.

    Raises:
        SandboxStartFailed: It ended before it answered, did not answer in time, or does not fit.
        EngineSilent: The engine does not answer.
    """
    settings, engine = ground.settings, ground.engine
    with ExitStack() as stack:
        meeting, listener = await to_thread.run_sync(_make_sockets, directory, stack)
        config = container_config(settings, image_id=ground.image_id, meeting_directory=str(directory / "m"), marks=marks)
        await engine.create(name, config)
        await engine.start(name)
        try:
            with anyio.fail_after(settings.start_timeout_seconds):
                line = await _met(ground, name, meeting, listener)
        except TimeoutError:
            said = await engine.last_words(name)
            waited = settings.start_timeout_seconds
            raise SandboxStartFailed(f"The container took longer than {waited:g} s to start: {said or 'it printed nothing.'}") from None
    container = Container(ground, name=name, directory=directory, line=line)
    try:
        await _check_health(container, settings)
    except BaseException:
        line.close()
        raise
    return container


async def _met(ground: Ground, name: str, meeting: socket.socket, listener: socket.socket) -> socket.socket:
    """Hand the server's socket in, or tell why the container ended before that."""
    line: socket.socket | None = None
    problem: EngineRefused | EngineSilent | None = None
    state: Mapping[str, object] = {}
    async with anyio.create_task_group() as group:

        async def meet() -> None:
            nonlocal line
            line = await hand_over(meeting, listener)
            group.cancel_scope.cancel()

        group.start_soon(meet)
        try:
            while state.get("Status", "created") in ("created", "running"):
                await anyio.sleep(_LOOK_SECONDS)
                state = (await ground.engine.inspect(name))["State"]
        except (EngineRefused, EngineSilent) as error:
            problem = error  # raised below: the group would wrap it
        group.cancel_scope.cancel()
    if line is None and problem is not None:
        raise problem
    if line is None:
        said = (await ground.engine.last_words(name))[-_SAID_CHARACTERS:]
        raise SandboxStartFailed(f"The container did not start: {why_ended(state, ground.settings.limits)} {said or 'It printed nothing.'}")
    return line


async def _check_health(container: Container, settings: ContainerSandboxSettings) -> None:
    transport = over_socket(container.socket_path)
    client = httpx.AsyncClient(transport=transport, base_url="http://sandbox", timeout=settings.start_timeout_seconds)
    async with client:
        try:
            said = (await client.get("/health")).raise_for_status().json()
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            reason = await container.settle(1.0) or f"its server does not tell its health ({error})."
            raise SandboxStartFailed(f"The container did not start: {reason}") from error
    differences = health_differences(said if isinstance(said, dict) else {}, settings.expected)
    if differences:
        raise SandboxMismatch(settings.image, differences)


def _make_sockets(directory: Path, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Make both listening sockets: whatever user the container runs as must reach the first, only we the second."""
    meeting_directory = directory / "m"
    directory.mkdir(mode=0o700)
    meeting_directory.mkdir()
    meeting_directory.chmod(0o755)
    meeting = stack.enter_context(listen(meeting_directory / MEETING_SOCKET, 0o666))
    stack.callback((meeting_directory / MEETING_SOCKET).unlink, missing_ok=True)
    listener = stack.enter_context(listen(directory / "s", 0o600))
    return meeting, listener


def _remove_directory(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)
