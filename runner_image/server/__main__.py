"""Starts the code-session server: `python -m runner_image.server --uds PATH`.

Order matters for the time to the first answer: the fork server loads beside our own slow imports.
"""

import contextlib
import importlib.util
import os
import resource
import socket
import subprocess
import sys
from typing import NoReturn

from runner_image.courtesy import step_back

from .forkserver import ForkServer, execution_environment
from .settings import ServerSettings, parse_settings


def main() -> None:
    """Serve until SIGTERM. Words that begin with no hyphen are a program to become instead, as after the name of any image."""
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        _become(sys.argv[1:])
    settings = parse_settings(sys.argv[1:], os.environ)
    step_back()
    if settings.user_processes is not None:
        resource.setrlimit(resource.RLIMIT_NPROC, (settings.user_processes, settings.user_processes))
    for directory in (settings.data, settings.workspace):
        with contextlib.suppress(OSError):  # read-only or somebody else's: the first use tells it better
            directory.mkdir(parents=True, exist_ok=True)
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    fork_server = ForkServer(settings.data)
    listener = _listen(settings)
    if settings.prewarm_runner:
        _start_runner(settings)

    from .serving import run  # imports the web server, which takes longer than all of the above

    run(settings, listener, fork_server)


def _become(words: list[str]) -> NoReturn:
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"{words[0]!r} cannot be run here: {error.strerror}")


def _listen(settings: ServerSettings) -> socket.socket:
    if settings.fd is not None:
        return socket.socket(fileno=settings.fd)
    if settings.uds is not None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            settings.uds.unlink(missing_ok=True)
            listener.bind(str(settings.uds))
        except OSError as error:
            sys.exit(f"the socket {str(settings.uds)!r} cannot be made: {error}; name another place, with a path of at most 107 bytes")
    else:
        try:
            listener = socket.create_server((settings.host, settings.port))
        except PermissionError:
            sys.exit(f"port {settings.port} is not open to this user; set CLAUDE_CODE_SERVER_PORT, and the pool's target port, above 1023")
    listener.listen(1024)
    return listener


def _start_runner(settings: ServerSettings) -> None:
    """Start the runner detached; an image without one still serves code."""
    if importlib.util.find_spec("runner_image.runner") is None:
        return
    from runner_image.exchange import claim_start  # where the runner is, that is too

    words = [sys.executable, "-P", "-m", "runner_image.runner"]
    places = ["--state", str(settings.state), "--data", str(settings.data), "--workspace", str(settings.workspace)]
    with contextlib.suppress(OSError), (settings.state / "runner.log").open("ab") as log:
        if (lock := claim_start(str(settings.state))) is None:
            return
        try:
            subprocess.Popen(
                [*words, *places, "--lock", str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=execution_environment(os.environ),
                pass_fds=(lock,),
                start_new_session=True,
            )
        finally:
            os.close(lock)


if __name__ == "__main__":
    main()
