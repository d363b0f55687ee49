"""Several real processes around one conversation: the Context API with its sandboxes, and replicas of the service that share a store."""

import asyncio
import os
import signal
import socket
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from context_client import ContextClient, UserIdentity
from orchestration_service.cli.client import Caller
from orchestration_service.cli.hosting import SCRIPTED_KEY
from workflow_schemas.receipt import Receipt

INSTANCE, KEY = "11111111-2222-3333-4444-555555555555", "a-key-for-the-test"
LEASE_SECONDS = 2


@dataclass
class Process:
    """A process of ours."""

    url: str
    running: asyncio.subprocess.Process

    def kill(self) -> None:
        """End it as a power cut does."""
        self.running.kill()

    async def stop(self) -> None:
        """Ask it to end, and wait."""
        with suppress(ProcessLookupError):
            self.running.send_signal(signal.SIGTERM)
        await self.running.wait()


Start = Callable[[Path, Mapping[str, str], int], Awaitable[Process]]
"""Starts a replica: folder, environment, number."""


@dataclass
class Replicas:
    """The running parts."""

    context: Process
    services: list[Process]
    callers: list[Caller]
    folder: Path
    polls: list[dict[str, Any]] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)

    async def status(self, operation_id: str) -> dict[str, Any]:
        """Poll as a load balancer does: whoever is alive answers."""
        for process, caller in zip(self.services, self.callers, strict=True):
            if process.running.returncode is None:
                with suppress(httpx.TransportError):
                    state = await caller.status(operation_id)
                    self.polls.append(state)
                    return state
        raise AssertionError("no replica is alive")

    async def finished(self, operation_id: str) -> dict[str, Any]:
        while (state := await self.status(operation_id))["status"] == "InProgress":
            await asyncio.sleep(0.05)
        return state

    def stored(self) -> Counter[str]:
        """How many file records there are under each name."""
        with sqlite3.connect(f"file:{self.folder / 'context' / 'records.sqlite3'}?mode=ro", uri=True) as database:
            names = database.execute("SELECT file_name FROM documents WHERE type = 'file-record'")
            return Counter(name for (name,) in names)


def receipt(state: dict[str, Any]) -> Receipt:
    found = next(item for item in state["result"]["content_artifacts"] if item["type"] == "WorkflowExecution")
    return Receipt.model_validate_json(found["metadata"]["receipt"])


def stored_files(folder: Path, conversation: str) -> set[str]:
    """The ids of the file records of a conversation."""
    with sqlite3.connect(f"file:{folder / 'context' / 'records.sqlite3'}?mode=ro", uri=True) as database:
        query = "SELECT id FROM documents WHERE type = 'file-record' AND conversation_id = ?"
        return {found for (found,) in database.execute(query, (conversation,))}


def files_of(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The file artifacts of an answer by their names."""
    found = [item for item in state["result"]["content_artifacts"] if item["type"] == "File"]
    names = {item["metadata"]["original_file_name"]: item for item in found}
    assert len(names) == len(found), "a file is told twice"
    return names


@asynccontextmanager
async def open_replicas(
    folder: Path, model_url: str, *, leases: Sequence[int] = (LEASE_SECONDS, LEASE_SECONDS), first: Start | None = None
) -> AsyncIterator[Replicas]:
    """Start everything, a replica for each length of the lease, and end it; nothing outlives the block.

    Args:
        folder: Where everything is kept.
        model_url: The model's address.
        leases: In seconds.
        first: Starts the first replica otherwise than as a process.
    """
    running: list[Process] = []
    http: list[httpx.AsyncClient] = []
    user = UserIdentity(name="Ann", user_name="ann@example.com", upn="ann@example.com")
    try:
        context = await context_api(folder)
        running.append(context)
        for number, lease in enumerate(leases):
            start = first if first is not None and number == 0 else start_service
            running.append(
                await start(folder, environment(folder, context.url, model_url, lease), number)
            )  # those before one that fails end too
        async with ContextClient(base_url=context.url, api_key=KEY, instance_id=INSTANCE) as client:
            headers = {"X-API-KEY": KEY, "X-USER-IDENTITY": user.to_header()}
            http = [httpx.AsyncClient(base_url=service.url, headers=headers, timeout=60) for service in running[1:]]
            yield Replicas(context, running[1:], [Caller(one, client, user, INSTANCE) for one in http], folder)
    finally:
        for one in http:
            await one.aclose()
        for process in reversed(running):
            await process.stop()


async def context_api(folder: Path) -> Process:
    words = ["-m", "context_client.embedded", "--folder", str(folder / "context"), "--instance", INSTANCE]
    running = await asyncio.create_subprocess_exec(
        sys.executable, *words, env={**_environment(), "CONTEXT_API_KEY": KEY}, stdout=asyncio.subprocess.PIPE
    )
    assert running.stdout is not None
    return Process((await running.stdout.readline()).decode().strip(), running)


def environment(folder: Path, context_url: str, model_url: str, lease: int) -> dict[str, str]:
    """What makes a service one of the replicas."""
    return {
        "CLAUDE_CODE_DATA_DIR": str(folder / "shared"),
        "CLAUDE_CODE_INSTANCE_ID": INSTANCE,
        "CLAUDE_CODE_API_KEY": KEY,
        "CLAUDE_CODE_CONTEXT_URL": context_url,
        "CLAUDE_CODE_CONTEXT_API_KEY": KEY,
        "CLAUDE_CODE_LEASE_SECONDS": str(lease),
        "ANTHROPIC_API_KEY": SCRIPTED_KEY,
        "ANTHROPIC_BASE_URL": model_url,
    }


async def start_service(folder: Path, variables: Mapping[str, str], number: int) -> Process:
    """Start a replica as a process."""
    port = free_port()
    words = [sys.executable, "-m", "orchestration_service.cli", "serve", "--port", str(port)]
    return await started(words, {**_environment(), **variables}, port=port, log=folder / f"service-{number}.log")


async def started(words: Sequence[str], variables: Mapping[str, str], *, port: int, log: Path) -> Process:
    """Run a command that serves on that port, and wait until it answers."""
    with log.open("wb") as file:
        running = await asyncio.create_subprocess_exec(*words, env=variables, stdout=file, stderr=file)
    process = Process(f"http://127.0.0.1:{port}", running)
    async with httpx.AsyncClient(base_url=process.url) as http:
        while running.returncode is None:
            with suppress(httpx.TransportError):
                await http.get(f"/instances/{INSTANCE}/status")
                return process
            await asyncio.sleep(0.05)
    raise AssertionError(await asyncio.to_thread(log.read_text))


def _environment() -> dict[str, str]:
    hidden = ("ANTHROPIC_", "CLAUDE_CODE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
