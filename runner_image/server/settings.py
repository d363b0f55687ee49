"""What the server may be told, read once from the command line, or from the environment where a platform sets only that."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ExecutionLimits:
    """Soft resource limits of one execution.

    They stop accidents; the sandbox around the server is what encloses. Memory, CPU time and file size are off unless
    asked for, because a daemon started by an execution would inherit them.
    """

    timeout_seconds: float = 100.0
    """Wall-clock time after which the execution and its process group are killed."""

    output_bytes: int = 16 * MEBIBYTE
    """How much of each of stdout and stderr is kept; the rest is read and dropped, and the text says so."""

    address_space_bytes: int | None = None
    """RLIMIT_AS; code over it sees MemoryError."""

    cpu_seconds: int | None = None
    """RLIMIT_CPU; code over it is killed by SIGXCPU."""

    file_size_bytes: int | None = None
    """RLIMIT_FSIZE; a write beyond it fails."""

    processes: int | None = None
    """RLIMIT_NPROC, counted over the whole user, not only this execution."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where the server listens, where its files are and what executions may use."""

    data: Path = Path("/mnt/data")
    """The session's file store and the working directory of executions."""

    state: Path = Path("/run/claude-code")
    """Private directory of server and runner; created with mode 0700."""

    workspace: Path = Path("/workspace")
    """Where a runner started ahead of its work keeps the repository."""

    uds: Path | None = None
    """Listen on this Unix socket."""

    fd: int | None = None
    """Listen on this inherited, already listening socket: then no path to it exists inside the sandbox."""

    host: str = "0.0.0.0"  # the platform's container contract: all interfaces of a sandbox without egress
    """Listen on this address if neither `uds` nor `fd` is given."""

    port: int = 80
    """TCP port beside `host`; 0 lets the system choose."""

    prewarm_runner: bool = False
    """Start the runner in the background at once, so that its slow imports are done before the work arrives."""

    user_processes: int | None = None
    """RLIMIT_NPROC for the server and everything it starts: the bound on fork bombs."""

    limits: ExecutionLimits = ExecutionLimits()
    """What each execution may use."""


def parse_settings(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> ServerSettings:
    """Read the command line.

    Args:
        arguments: The words after the program's name.
        environment: `CLAUDE_CODE_SERVER_UDS` and `CLAUDE_CODE_SERVER_PORT` stand in for the words of those names.

    Raises:
        SystemExit: The words make no sense; the reason was printed.
    """
    parser = argparse.ArgumentParser(prog="python -m runner_image.server", description="The code-session server.")
    parser.add_argument("--data", type=Path, default=ServerSettings.data)
    parser.add_argument("--state", type=Path, default=ServerSettings.state)
    parser.add_argument("--workspace", type=Path, default=ServerSettings.workspace)
    listen = parser.add_mutually_exclusive_group()
    listen.add_argument("--uds", type=Path)
    listen.add_argument("--fd", type=int)
    listen.add_argument("--host", default=ServerSettings.host)
    parser.add_argument("--port", type=int)
    parser.add_argument("--prewarm-runner", action="store_true")
    parser.add_argument("--user-processes", type=int)
    parser.add_argument("--timeout-seconds", type=float, default=ExecutionLimits.timeout_seconds)
    parser.add_argument("--output-bytes", type=int, default=ExecutionLimits.output_bytes)
    parser.add_argument("--address-space-bytes", type=int)
    parser.add_argument("--cpu-seconds", type=int)
    parser.add_argument("--file-size-bytes", type=int)
    parser.add_argument("--processes", type=int)
    words = vars(parser.parse_args(arguments))
    _listen_as_told(words, environment or {}, parser)
    limits = ExecutionLimits(**{name: words.pop(name) for name in ExecutionLimits.__dataclass_fields__})
    return ServerSettings(limits=limits, **words)


def _listen_as_told(words: dict[str, Any], environment: Mapping[str, str], parser: argparse.ArgumentParser) -> None:
    """Fill in where to listen: the command line goes before the environment, and that before our own default."""
    told = words["uds"] or words["fd"] is not None or words["port"] is not None
    if not told and (uds := environment.get("CLAUDE_CODE_SERVER_UDS")):
        words["uds"] = Path(uds)
    port = environment.get("CLAUDE_CODE_SERVER_PORT", "") if words["port"] is None else words["port"]
    try:
        words["port"] = int(port or ServerSettings.port)
    except ValueError:
        parser.error(f"CLAUDE_CODE_SERVER_PORT is {port!r}, and must be a number")
