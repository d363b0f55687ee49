"""Runs code: each execution in a process of its own, with a deadline, and its words kept whatever happens.

The answer comes when the code's own process ends, not when its output is closed: a process it left in the background
is killed with its group, one that detached itself (a session of its own) lives on, like the runner's daemon.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from .capture import Capture
from .errors import ForkServerGone
from .forkserver import ForkServer
from .leftovers import kill_sessions
from .settings import ExecutionLimits

_MAX_AT_ONCE = 256
_MAX_REMEMBERED = 4096
_MAX_REPORT_BYTES = 64 * 1024 * 1024
_KILL_GRACE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an execution gave, in the words of the wire."""

    results: dict[str, str]
    """Names of the last statement with their values as JSON text; empty after a failure."""

    output: str
    """What it printed; after a success with what it printed on stderr at the end."""

    error: str
    """Empty after a success; else one sentence, followed by what it printed on stderr."""


class Executor:
    """Hands code to the fork server and collects what comes of it; open it with `open_executor`."""

    def __init__(self, data: Path, limits: ExecutionLimits, fork_server: ForkServer) -> None:
        self._data = data
        self._limits = limits
        self._running: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._stopped: dict[int, str] = {}
        self._sessions: dict[int, None] = {}
        self._next_number = 0
        self._restarting = asyncio.Lock()
        self._slots = asyncio.Semaphore(_MAX_AT_ONCE)
        self._adopt(fork_server)

    async def execute(self, code: str) -> Outcome:
        """Run code to its end or to the deadline.

        Never raises for anything the code does: that is in the outcome.

        Args:
            code: Python source.
        """
        async with self._slots:
            try:
                return await self._execute(code)
            except (ForkServerGone, OSError) as error:
                return Outcome(results={}, output="", error=f"The code could not be run: {error}")

    async def kill_leftovers(self) -> None:
        """Kill what runs, and what earlier executions left behind; detached processes stay."""
        for number in list(self._running):
            await self._stop(number, "The code was stopped because the session's files were deleted.")
        sessions = frozenset(self._sessions)
        self._sessions.clear()
        await asyncio.to_thread(kill_sessions, sessions)

    async def close(self) -> None:
        """End the fork server and all that runs in it."""
        await self._fork_server.close()

    def _adopt(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server
        self._fork_server_gone = False
        fork_server.attach(self._hear, self._lose)

    def _lose(self) -> None:
        """Tell executions that their fork server died; the next execution starts another one, and no loop does."""
        self._fork_server_gone = True
        for future in self._running.values():
            if not future.done():
                future.set_exception(ForkServerGone("the process that starts executions was killed meanwhile; send the code again."))

    def _hear(self, message: dict[str, object]) -> None:
        if isinstance(pid := message.get("pid"), int):
            self._sessions[pid] = None
            if len(self._sessions) > _MAX_REMEMBERED:
                del self._sessions[next(iter(self._sessions))]
            return
        future = self._running.get(int(str(message["id"])))
        if future is not None and not future.done():
            future.set_result(message)

    async def _execute(self, code: str) -> Outcome:
        async with self._restarting:
            if self._fork_server_gone:
                await self._fork_server.close()
                self._adopt(await asyncio.to_thread(ForkServer, self._data))
        self._next_number += 1
        number = self._next_number
        future = self._running[number] = asyncio.get_running_loop().create_future()
        try:
            with _memory_file("code") as code_fd, _memory_file("report") as report_fd, self._captures() as streams:
                _write_all(code_fd, code.encode("utf-8", "surrogatepass"))
                fds = (code_fd, report_fd, streams[0].writer, streams[1].writer)
                try:
                    await self._fork_server.send({"id": number, "limits": _child_limits(self._limits)}, fds)
                finally:
                    for stream in streams:
                        stream.hand_over()
                ended = await self._wait(number, future)
                output, errors = (stream.finish() for stream in streams)
                report = _read_report(report_fd)
                return _judge(ended, self._stopped.get(number), report, output, errors)
        finally:
            del self._running[number]
            self._stopped.pop(number, None)

    async def _wait(self, number: int, future: asyncio.Future[dict[str, object]]) -> dict[str, object]:
        done, _ = await asyncio.wait({future}, timeout=self._limits.timeout_seconds)
        if not done:
            await self._stop(number, f"The code was stopped after {self._limits.timeout_seconds:g} seconds, its time limit.")
            done, _ = await asyncio.wait({future}, timeout=_KILL_GRACE_SECONDS)
        if not done:
            return {"status": None}  # stuck in the kernel; the caller gets its answer all the same
        return future.result()

    async def _stop(self, number: int, reason: str) -> None:
        self._stopped.setdefault(number, reason)
        with contextlib.suppress(ForkServerGone):
            await self._fork_server.send({"kill": number})

    @contextmanager
    def _captures(self) -> Iterator[tuple[Capture, Capture]]:
        limit = self._limits.output_bytes
        out = Capture("stdout", limit)
        try:
            err = Capture("stderr", limit)
            try:
                yield out, err
            finally:
                err.close()
        finally:
            out.close()


@asynccontextmanager
async def open_executor(data: Path, limits: ExecutionLimits, fork_server: ForkServer) -> AsyncIterator[Executor]:
    """Run an executor around a fork server that was started before the event loop.

    Args:
        data: Working directory of executions.
        limits: What each may use.
        fork_server: Owned from now on.
    """
    executor = Executor(data, limits, fork_server)
    try:
        yield executor
    finally:
        await executor.close()


def _child_limits(limits: ExecutionLimits) -> dict[str, int | None]:
    fields = asdict(limits)
    return {name: fields[name] for name in ("address_space_bytes", "cpu_seconds", "file_size_bytes", "processes")}


@contextmanager
def _memory_file(name: str) -> Iterator[int]:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_report(fd: int) -> dict[str, object] | None:
    size = os.fstat(fd).st_size
    if not 0 < size <= _MAX_REPORT_BYTES:
        return None
    try:
        report = json.loads(os.pread(fd, size, 0))
    except ValueError:
        return None  # the code can write into this file if it looks for it; then it harms its own answer
    return report if isinstance(report, dict) else None


def _judge(ended: dict[str, object], stopped: str | None, report: dict[str, object] | None, output: str, errors: str) -> Outcome:
    failure = stopped or _failure(ended, report)
    if failure:
        return Outcome(results={}, output=output, error=f"{failure}\n{errors}" if errors else failure)
    results, hints = (report or {}).get("results"), (report or {}).get("hints")
    if not isinstance(results, dict) or not isinstance(hints, list):
        results, hints = {}, []
    # On success stderr (warnings, progress bars) goes below the output: the stock tool takes any text in `error` for a
    # failure and would throw the output away. For the same reason hints are no errors.
    return Outcome(
        results={str(name): str(text) for name, text in results.items()},
        output=_below(_below(output, errors), "".join(f"{hint}\n" for hint in hints)),
        error="",
    )


def _below(text: str, more: str) -> str:
    """Put more text on lines of its own."""
    separator = "" if not more or not text or text.endswith("\n") else "\n"
    return text + separator + more


def _failure(ended: dict[str, object], report: dict[str, object] | None) -> str | None:
    if "refused" in ended:
        return f"The code could not be started: {ended['refused']}. The sandbox may be at its limit of processes."
    status = ended.get("status")
    if not isinstance(status, int):
        return "The code could not be stopped; the sandbox may have to be replaced."
    if status < 0:
        return f"The code's process was killed by {_signal_name(-status)}{_signal_hint(-status)}."
    if report is not None:
        failure = report.get("failure")
        return None if failure is None else str(failure)
    return None if status == 0 else f"The code ended its process with exit status {status}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _signal_hint(number: int) -> str:
    if number == signal.SIGKILL:
        return "; the sandbox may be out of memory"
    if number == signal.SIGXCPU:
        return ", its limit of CPU time"
    return ""
