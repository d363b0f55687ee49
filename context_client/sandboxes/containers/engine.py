"""The one edge to the engine's client library: blocking calls in worker threads, foreign errors translated.

The library's session is used by several threads at once, which its HTTP pool allows. Where the engine does not answer,
a call is made again for a while: its daemon may just be restarting, and every call here may be repeated.
"""

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from context_client.sandboxes.errors import SandboxUnavailable

from .errors import EngineRefused, EngineSilent

_THREADS = 16
_CALL_SECONDS = 60
_REMOVE_SECONDS = 30
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_LOG_LINES = 20
_USUAL_ADDRESS = "unix:///var/run/docker.sock"

Answer = TypeVar("Answer")
Record = Mapping[str, Any]


class Engine:
    """A container engine that answers Docker's API on a Unix socket."""

    def __init__(self, api: Any, refusal: type[Exception], patience_seconds: float) -> None:
        self._api = api
        self._refusal = refusal
        self._patience = patience_seconds
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def version(self) -> str:
        """Give the engine's name and version."""
        said = await self._ask("version", self._api.version)
        components = said.get("Components") or [{}]
        name = str(components[0].get("Name", "Engine"))  # "Engine" is Docker's, the other one says "Podman Engine"
        return f"{'Docker' if name == 'Engine' else name.removesuffix(' Engine')} {said.get('Version', 'of unknown version')}"

    async def info(self) -> Record:
        """Give what the engine says about itself."""
        return await self._ask("describe yourself", self._api.info)

    async def image(self, name: str) -> Record:
        """Give what is known about an image that is there."""
        return await self._ask(f"look at the image {name!r}", lambda: self._api.inspect_image(name))

    async def create(self, name: str, config: Record) -> str:
        """Make a container and give its id; one of the same name left by an answer that got lost is taken up.

        Args:
            name: Ours alone.
            config: In the words of Docker's API.
        """

        def create() -> str:
            return str(self._api.create_container_from_config(dict(config), name)["Id"])

        try:
            return await self._ask("create a container", create)
        except EngineRefused as error:
            if error.status != 409:
                raise
            return str((await self.inspect(name))["Id"])

    async def start(self, container: str) -> None:
        """Start a container; one that runs stays as it is."""
        await self._ask("start a container", lambda: self._api.start(container))

    async def inspect(self, container: str) -> Record:
        """Give everything about a container; a caller that is cancelled does not wait for an engine that hangs."""
        return await self._ask("look at a container", lambda: self._api.inspect_container(container), abandon=True)

    async def last_words(self, container: str) -> str:
        """Give the end of what a container printed; nothing where that cannot be had."""
        with contextlib.suppress(EngineRefused, EngineSilent):
            said = await self._ask("read a container's log", lambda: self._api.logs(container, tail=_LOG_LINES), abandon=True)
            return bytes(said).decode("utf-8", "replace").strip()
        return ""

    async def listing(self, label: str) -> list[Record]:
        """Give all containers with a label, also ended ones."""
        return await self._ask("list containers", lambda: list(self._api.containers(all=True, filters={"label": [label]})))

    async def remove(self, container: str) -> None:
        """Kill a container and remove it with its volumes; returns when it is gone, also if it was gone before."""
        until = anyio.current_time() + _REMOVE_SECONDS
        while True:
            try:
                await self._ask("remove a container", lambda: self._api.remove_container(container, v=True, force=True))
            except EngineRefused as error:
                if error.status == 404:
                    return
                if error.status != 409 or anyio.current_time() > until:  # 409: somebody is removing it already
                    raise
                await anyio.sleep(_FIRST_PAUSE_SECONDS)

    async def _ask(self, doing: str, call: Callable[[], Answer], *, abandon: bool = False) -> Answer:
        pause, until = _FIRST_PAUSE_SECONDS, anyio.current_time() + self._patience
        while True:
            try:
                return await to_thread.run_sync(self._call, doing, call, limiter=self._threads, abandon_on_cancel=abandon)
            except EngineSilent:
                if anyio.current_time() + pause > until:
                    raise
            await anyio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _call(self, doing: str, call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except self._refusal as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status is None or status in (502, 503):
                raise EngineSilent(doing, str(error)) from error
            raise EngineRefused(doing, status, str(getattr(error, "explanation", None) or error)) from error
        except OSError as error:  # what the HTTP library raises where nobody answers
            raise EngineSilent(doing, str(error)) from error


@asynccontextmanager
async def open_engine(url: str | None, patience_seconds: float) -> AsyncIterator[Engine]:
    """Speak to the engine of this machine.

    Args:
        url: Its socket; None for what `DOCKER_HOST` names, or the usual one.
        patience_seconds: For how long one that does not answer is asked again.

    Raises:
        SandboxUnavailable: There is none, or no library to speak to it.
    """
    address = url or os.environ.get("DOCKER_HOST") or _USUAL_ADDRESS
    if not address.startswith(("unix://", "http+unix://")):
        raise SandboxUnavailable(
            f"the container engine at {address!r} is not reached over a Unix socket.",
            advice=("Sandboxes are reached over sockets of this machine: name its own engine, such as unix:///var/run/docker.sock.",),
        )
    api, refusal = await to_thread.run_sync(_connect, address)
    try:
        yield Engine(api, refusal, patience_seconds)
    finally:
        api.close()


def _connect(address: str) -> tuple[Any, type[Exception]]:
    try:
        import docker  # type: ignore[import-untyped]
        from docker.errors import DockerException  # type: ignore[import-untyped]
    except ImportError as error:
        raise SandboxUnavailable(
            "the client library of container engines is not installed.",
            advice=("Install this project with it: pip install 'foundationallm-claude-code[containers]'",),
        ) from error
    api = None
    try:
        with socket.socket(socket.AF_UNIX) as trial:  # the library would forget the socket of an attempt that fails
            trial.connect(address.partition("://")[2])
        api = docker.APIClient(base_url=address, timeout=_CALL_SECONDS, version="auto", max_pool_size=_THREADS)
        api.ping()
    except (DockerException, OSError) as error:
        if api is not None:
            api.close()
        raise SandboxUnavailable(
            f"no container engine answers at {address!r} ({error}).",
            advice=(
                "Start it: systemctl start docker",
                "Let this service's user use its socket, or name another one: DOCKER_HOST=unix:///…",
            ),
        ) from error
    return api, DockerException
