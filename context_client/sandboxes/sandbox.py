"""One running local sandbox: a process tree behind bubblewrap, and a socket to the server inside it."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
from anyio import to_thread
from anyio.abc import Process

from .errors import SandboxStartFailed
from .groups import remove
from .launch import Launch
from .transport import over_socket

_READY_SECONDS = 30.0
_END_SECONDS = 5.0
_SAID_BYTES = 4000


class Sandbox:
    """A sandbox that was started; it ends by `end`, by itself, or with this process."""

    def __init__(self, process: Process, socket_path: Path, user: int | None, group: Path | None = None) -> None:
        self._process = process
        self._reason: str | None = None
        self._first: int | None = None
        self._group = group
        self.socket_path = socket_path
        """Where its server is reached."""
        self.user = user
        """Its user id on the host, if it has one of its own."""

    @property
    def pid(self) -> int:
        """Process id of the outermost process."""
        return self._process.pid

    @property
    def ended(self) -> str | None:
        """Why it is gone, in a sentence; None while it runs."""
        if self._reason is None and self._process.returncode is not None:
            self._reason = f"its server stopped by itself (exit status {self._process.returncode})."
        return self._reason

    async def settle(self, seconds: float) -> str | None:
        """Wait a moment for an end that is under way, after its connection broke; give the reason like `ended`."""
        with anyio.move_on_after(seconds):
            await self._process.wait()
        return self.ended

    async def adopt_first_process(self) -> None:
        """Get hold of the sandbox's own first process, now that it runs for sure."""
        self._first = await to_thread.run_sync(_open_child, self.pid)

    async def end(self, reason: str) -> None:
        """Kill it with everything inside, and wait until it is gone; repeating is harmless.

        The kernel lets the first process of a process space end only after all others in it, and bubblewrap waits for
        that one: so when bubblewrap has ended by itself, nothing is left.
        """
        self._reason = self.ended or reason
        first, self._first = self._first, None
        with anyio.CancelScope(shield=True):
            if first is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(first, signal.SIGKILL)
                os.close(first)
                with anyio.move_on_after(_END_SECONDS):
                    await self._process.wait()
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            with anyio.move_on_after(_END_SECONDS):
                await self._process.wait()
                await self._process.aclose()
            if self._group is not None:
                await to_thread.run_sync(remove, self._group)
        self.socket_path.unlink(missing_ok=True)


async def start_sandbox(launch: Launch, socket_path: Path) -> Sandbox:
    """Start a sandbox and wait until its server answers.

    The listening socket is made here and inherited by the server, so that nothing of the host's file system is
    writable inside, and no path in there leads to the server.

    Args:
        launch: How; its words must contain `{fd}` where the socket's number goes.
        socket_path: Where to listen.

    Raises:
        SandboxStartFailed: It ended before it answered, or did not answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(socket_path))
        listener.listen(1024)
        words = [word.replace("{fd}", str(listener.fileno())) for word in launch.words]
        process = await anyio.open_process(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=launch.environment,
            pass_fds=[listener.fileno()],
        )
    sandbox = Sandbox(process, socket_path, launch.user, launch.group)
    try:
        await _wait_ready(sandbox, process)
        await sandbox.adopt_first_process()
    except BaseException:
        await sandbox.end("it did not start.")
        raise
    return sandbox


def _open_child(pid: int) -> int | None:
    """Open the only child of a process; None where the kernel does not list children."""
    try:
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return os.pidfd_open(int(child))
    except (OSError, ValueError):
        return None


async def _wait_ready(sandbox: Sandbox, process: Process) -> None:
    """The connection waits in the socket's queue until the server takes it; the process may end before that."""
    answered = False
    async with anyio.create_task_group() as group:

        async def ask() -> None:
            nonlocal answered
            transport = over_socket(sandbox.socket_path)
            async with httpx.AsyncClient(transport=transport, base_url="http://sandbox", timeout=_READY_SECONDS) as client:
                with contextlib.suppress(httpx.TransportError):
                    answered = (await client.get("/health")).is_success
            group.cancel_scope.cancel()

        group.start_soon(ask)
        await process.wait()
        await anyio.sleep(0.05)  # the broken connection is seen a moment later than the exit
        group.cancel_scope.cancel()
    if not answered:
        said = await _last_words(process)
        raise SandboxStartFailed(f"The sandbox did not start (exit status {process.returncode}): {said}")


async def _last_words(process: Process) -> str:
    said = b""
    if process.stderr is not None:
        with anyio.move_on_after(0.5), contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError):
            while len(said) < _SAID_BYTES:
                said += await process.stderr.receive()
    return said.decode("utf-8", "replace").strip()[-_SAID_BYTES:] or "it said nothing."


@asynccontextmanager
async def one_shot(launch: Launch) -> AsyncIterator[tuple[int, str]]:
    """Run a sandbox without a server to its end; gives its exit status and what it said."""
    process = await anyio.open_process(
        launch.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", env=launch.environment
    )
    try:
        said = await _last_words(process)
        with anyio.fail_after(_READY_SECONDS):
            yield await process.wait(), said
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with anyio.move_on_after(_END_SECONDS, shield=True):
            await process.aclose()
