"""What a call of the direct path stands on: its folders, a wall that was tried out, and nobody else at work."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from runner_image.direct.errors import SandboxUnusable
from runner_image.errors import WallUnavailable
from runner_image.places import Places, agent_cli
from runner_image.walls import Wall, base_environment, find_wall

_TRY_SECONDS = 20.0
_SHOWN = 300
_MAX_SOCKET_BYTES = 107  # the kernel's; one more is the end of the text


@asynccontextmanager
async def only_call(places: Places) -> AsyncIterator[None]:
    """Make the folders and keep other calls of the direct path out until the context ends.

    Raises:
        SandboxUnusable: A folder cannot be made or has too long a path, or another call is at work.
    """
    descriptor = await asyncio.to_thread(_lock, places)
    try:
        yield
    finally:
        os.close(descriptor)


async def raise_wall(places: Places) -> Wall:
    """Return the wall after trying out both of its parts, the agent's and that of a shell command.

    Raises:
        WallUnavailable: One of them does not work here.
        SandboxUnusable: The agent's program is missing.
    """
    if not await asyncio.to_thread(agent_cli().is_file):
        raise SandboxUnusable("The agent's program is missing: the package claude-agent-sdk with its bundled CLI is not installed here.")
    wall = await find_wall(places)
    await asyncio.to_thread(wall.install, base_environment(wall.view))
    status, said = await _run(wall.command([wall.view.shell, "true"], environment=base_environment(wall.view), agent=True))
    if status != 0:
        raise WallUnavailable(
            f"a shell command of the agent cannot be given a process space of its own here ({said}); "
            "run this as a user other than root, where user namespaces are allowed"
        )
    return wall


async def cli_version(wall: Wall) -> str:
    """Start the agent's program behind the wall and return the version it tells.

    Raises:
        SandboxUnusable: It does not start.
    """
    wrapper = await asyncio.to_thread(wall.install, base_environment(wall.view))
    status, said = await _run([str(wrapper), "--version"])
    if status != 0:
        raise SandboxUnusable(f"The agent's program does not start behind the wall (exit status {status}): {said}")
    return said.partition(" ")[0]


def _lock(places: Places) -> int:
    if len(os.fsencode(places.model_socket)) > _MAX_SOCKET_BYTES:
        room = _MAX_SOCKET_BYTES - len(os.fsencode(places.model_socket)) + len(os.fsencode(places.state))
        raise SandboxUnusable(
            f"The path {str(places.state)!r} is too long for sockets. Name another folder with --state, of {room} bytes at most."
        )
    try:
        places.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (places.workspace, places.outputs, places.agent_config, places.model_socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(places.state / "call.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SandboxUnusable(
            f"A folder for the agent's work cannot be used: {error}. Run this in the runner's image, or name other folders "
            "(--state, --workspace, --outputs)."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SandboxUnusable("Another call is at work in this sandbox. Wait until it is done and call again.") from None
    return descriptor


async def _run(command: Sequence[str | Path]) -> tuple[int, str]:
    """Run a short program to its end; return its exit status and the beginning of what it said."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(_TRY_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, f"no answer within {_TRY_SECONDS:.0f} s"
    return process.returncode or 0, said.decode(errors="replace").strip()[:_SHOWN]
