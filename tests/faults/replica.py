"""One replica of the service in a process of its own, forked from one that has everything imported, and killed at will."""

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import anyio
from pydantic import SecretStr

from orchestration_service import composition
from orchestration_service.keeper import Pace
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.operations import SqliteOperations
from orchestration_service.planning import SandboxLimits
from orchestration_service.scripted.endpoint import serve
from orchestration_service.settings import Settings, load_settings
from tests.faults.choosing import Fault
from tests.faults.watched import Journal, Trigger, WatchedStore
from tests.faults.weather import Weather, shift_clocks

API_KEY = "faults-platform-key-0001"
INSTANCE = "5f0c2c1e-6f2b-4c53-9d7a-1c2f6f9f2a10"
MODEL_KEY = "sk-ant-faults-never-inside"
TURN_SECONDS = 100.0
PACE = Pace(lease=2.0, look=0.4, wait=0.5, late=(1.0, 2.0, 4.0, 8.0, 16.0), patience=15.0)
"""Everything the service waits for, made short; what is short in relation to what stays so."""

_END_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1


def forking() -> ForkServerContext:
    """Processes forked from a clean one in which the service is imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.suite", "orchestration_service.brokers.clients"])
    return context


@dataclass(frozen=True, kw_only=True)
class ReplicaSetup:
    """What a replica is told."""

    name: str
    folder: Path
    """The run's folder; `data` in it holds the store."""
    context_url: str
    """Where the Context API is; empty for one of its own, with sandboxes of its own."""
    model_url: str
    fault: Fault
    fault_at: int
    """At which of its writes the fault happens here; 0 for never."""


class Replica:
    """A running replica."""

    def __init__(self, name: str, process: ForkServerProcess, url: str) -> None:
        self.name = name
        self.url = url
        self._process = process

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> str:
        """Ask it to end and wait; return what was wrong with that, or nothing."""
        if self._process.is_alive():
            self._process.terminate()
        await asyncio.to_thread(self._process.join, _END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            await asyncio.to_thread(self._process.join, _END_SECONDS)
            return f"replica {self.name} did not end within {_END_SECONDS:.0f} s"
        code = self._process.exitcode
        return "" if code in (0, -signal.SIGKILL) else f"replica {self.name} ended with {code}"


async def start_replica(setup: ReplicaSetup) -> Replica:
    """Fork a replica and wait until it listens."""
    context = forking()
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(setup, theirs), name=f"replica {setup.name}")
    await asyncio.to_thread(process.start)
    theirs.close()
    try:
        url = await asyncio.to_thread(ours.recv)
    except EOFError:
        url = ""  # killed before it listened: the run goes on with the others
    finally:
        ours.close()
    return Replica(setup.name, process, url)


def _run(setup: ReplicaSetup, ready: Connection) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    said = os.open(setup.folder / f"{setup.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)
    asyncio.run(_serve(setup, ready))


async def _serve(setup: ReplicaSetup, ready: Connection) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    data = setup.folder / "data"
    weather = Weather(setup.folder / "weather")
    trigger = Trigger(setup.fault, setup.fault_at, weather, data)

    @asynccontextmanager
    async def open_watched_store(settings: Settings) -> AsyncIterator[Any]:
        async with SqliteOperations(settings.data_dir / "operations.sqlite", clock=weather.now) as store:
            yield WatchedStore(store, Journal(setup.folder / "journal.jsonl", setup.name), trigger, weather)

    assert "open_store" in vars(composition), "the composition root opens its store by another name now"
    vars(composition)["open_store"] = open_watched_store
    settings = load_settings(
        _env_file=None,
        instance_id=INSTANCE,
        instance_name=setup.name,
        api_key=API_KEY,
        data_dir=data,
        context_url=setup.context_url or None,
        context_api_key=API_KEY if setup.context_url else None,
    )
    routes = ModelRoutes(default_key=SecretStr(MODEL_KEY), base_url=f"{setup.model_url}/{setup.name}")
    shift_clocks(weather)
    limits = SandboxLimits(max_turn_seconds=TURN_SECONDS)
    async with composition.open_service(settings, routes=routes, limits=limits, pace=PACE) as service, serve(service.app) as endpoint:
        ready.send(endpoint.base_url)
        ready.close()
        await stop.wait()
    await anyio.lowlevel.checkpoint()
