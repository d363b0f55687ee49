"""A sign-in that a person confirms on another device: for model endpoints behind an identity, in a sandbox where nobody can type.

The image names a program for it (`CLAUDE_CODE_SIGN_IN`, for example `az login --use-device-code`). It prints an address and a code for a
person and ends when that person is done; both are passed on as the event `device_code`. It runs outside the agent's wall.
"""

import asyncio
import os
import re
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress

from runner_image.direct.errors import SignInFailed
from runner_image.direct.events import emit_device_code, emit_progress

_ADDRESS = re.compile(r"https://[^\s\"'<>]{1,500}[^\s\"'<>.,;:)]")
_CODE = re.compile(r"\bcode\b[^A-Z0-9\n]{1,20}([A-Z0-9]{4,20}(?:-[A-Z0-9]{2,20}){0,3})\b")
_ALL_SECONDS = 840.0  # such codes hold for a quarter of an hour
_CHECK_SECONDS = 30.0
_KEPT_CHARS = 16 * 1024
_SHOWN_CHARS = 500


async def sign_in(environment: Mapping[str, str]) -> None:
    """Run the image's sign-in program, if there is one and it is needed.

    Args:
        environment: `CLAUDE_CODE_SIGN_IN` names the program, `CLAUDE_CODE_SIGN_IN_CHECK` one that succeeds where nothing has to be done.

    Raises:
        SignInFailed: It could not be run, ended badly, or nobody confirmed it in time.
    """
    try:
        program, check = (shlex.split(environment.get(name, "")) for name in ("CLAUDE_CODE_SIGN_IN", "CLAUDE_CODE_SIGN_IN_CHECK"))
    except ValueError as error:
        raise SignInFailed(f"CLAUDE_CODE_SIGN_IN or its check is no command line: {error}. Correct the image's setting.") from error
    if not program:
        return
    if check and (await _run(check, _CHECK_SECONDS, tell=False))[0] == 0:
        emit_progress("sign_in", "Signed in already.")
        return
    emit_progress("sign_in", "A person has to sign in.")
    status, said = await _run(program, _ALL_SECONDS, tell=True)
    if status != 0:
        raise SignInFailed(f"The sign-in did not succeed (exit status {status}): {said[-_SHOWN_CHARS:].strip()}")
    emit_progress("sign_in", "Signed in.")


async def _run(command: list[str], seconds: float, *, tell: bool) -> tuple[int, str]:
    """Run a program to its end; return its exit status and the last of what it said."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=nothing, stdout=pipe, stderr=asyncio.subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise SignInFailed(f"The program {command[0]!r} for the sign-in cannot be run: {error}. Correct the image's setting.") from error
    try:
        async with asyncio.timeout(seconds):
            said = await _listen(process, tell=tell)
            return await process.wait(), said
    except TimeoutError:
        raise SignInFailed(f"Nobody confirmed the sign-in within {seconds:.0f} s. Call again for a new code.") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _listen(process: asyncio.subprocess.Process, *, tell: bool) -> str:
    """Read what a program says to its end, and pass its code on once both parts are there."""
    said = ""
    while process.stdout is not None and (chunk := await process.stdout.read(4096)):
        said = (said + chunk.decode("utf-8", "replace"))[-_KEPT_CHARS:]
        lines = said.rpartition("\n")[0]  # an address may still be growing in the last one
        address, code = _ADDRESS.search(lines), _CODE.search(lines)
        if tell and address and code:
            message = next((line.strip() for line in lines.splitlines() if code[1] in line), "")
            emit_device_code(code[1], address[0], message[:_SHOWN_CHARS])
            tell = False
    return said
