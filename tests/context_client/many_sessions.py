"""Sessions created, used and released one after the other and side by side, and what they could leave behind."""

import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx
from anyio import to_thread

from context_client.conformance.container import download, execute, upload
from context_client.embedded.provider import SandboxProvider

SIDE_BY_SIDE = 6
EXCHANGES = 20


@dataclass
class Figures:
    """Seconds, as measured by the caller."""

    starts: list[float] = field(default_factory=list)
    executions: list[float] = field(default_factory=list)
    round_trips: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        rows = {"start": self.starts, "execution": self.executions, "round trip": self.round_trips}
        return "\n".join(
            f"{name}: p50 {statistics.median(values) * 1000:.1f} ms, worst {max(values) * 1000:.1f} ms, n {len(values)}"
            for name, values in rows.items()
        )


@dataclass
class Processes:
    """The processes this one starts from now on, and those which these start; emulators of other tests run already."""

    seen: set[tuple[int, str]] = field(default_factory=set)
    before: set[tuple[int, str]] = field(default_factory=lambda: _descendants())

    async def look(self) -> None:
        """Note those that are there now."""
        self.seen |= await to_thread.run_sync(_descendants) - self.before

    async def left(self) -> list[str]:
        """Those of them that are still there, wherever they belong by now."""
        return await to_thread.run_sync(lambda: [f"process {pid}" for pid, began in self.seen if _began(pid) == began])


async def play(sandboxes: SandboxProvider, sessions: int, processes: Processes | None = None) -> Figures:
    """Use many sessions, some at a time."""
    figures, gate = Figures(), anyio.Semaphore(SIDE_BY_SIDE)

    async def one(number: int) -> None:
        async with gate:
            await _use(sandboxes, f"session-{number}", figures)
            if processes is not None:
                await processes.look()

    async with anyio.create_task_group() as group:
        for number in range(sessions):
            group.start_soon(one, number)
    print(f"\n{sessions} sessions, {SIDE_BY_SIDE} side by side\n{figures}")
    assert len(figures.starts) == sessions
    return figures


async def _use(sandboxes: SandboxProvider, session_id: str, figures: Figures) -> None:
    """One user's session: a file in, code that works on it, the result out."""
    began = time.monotonic()
    endpoint = await sandboxes.endpoint(session_id=session_id, upn="many@example.test")
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=60) as client:
        assert (await client.get("/files")).is_success  # a pool gives the sandbox only now
        figures.starts.append(time.monotonic() - began)
        assert (await upload(client, "in.txt", session_id.encode())).is_success
        async with _timed(figures.executions):
            await execute(client, "open('out.txt', 'w').write(open('in.txt').read()[::-1])")
        assert (await download(client, "out.txt")).content == session_id[::-1].encode()
        for _ in range(EXCHANGES):
            async with _timed(figures.round_trips):
                await client.get("/health")


async def traces(directory: Path) -> dict[str, list[str]]:
    """Everything on this machine that has to do with a run directory."""

    def look() -> dict[str, list[str]]:
        mounts = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/mountinfo") if _reads(path)]
        sockets = Path("/proc/net/unix").read_text().splitlines()
        return {
            "processes": [f"a process sees {directory}" for seen in mounts if str(directory).encode() in seen],
            "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line],
            "files": [str(path) for path in directory.rglob("*")],
            "sockets": [line for line in sockets if str(directory) in line],
        }

    return {what: found for what, found in (await to_thread.run_sync(look)).items() if found}


def open_files() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a Path for each would be one more


def _reads(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


@asynccontextmanager
async def _timed(into: list[float]) -> AsyncIterator[None]:
    started = time.monotonic()
    yield
    into.append(time.monotonic() - started)


def _descendants() -> set[tuple[int, str]]:
    parents = {pid: parent for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (parent := _parent(pid))}  # noqa: PTH208
    found, ours = set(), {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
        found |= {(pid, began) for pid in more if (began := _began(pid))}
    return found


def _parent(pid: int) -> int:
    return int(fields[1]) if (fields := _stat(pid)) else 0


def _began(pid: int) -> str:
    """When a process began: the same number may be another process later. Nothing for one that has ended."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] != "Z" else ""


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
