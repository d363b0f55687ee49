"""What happens inside the process of one execution, from the fork to its end.

The process is a copy of the fork server: modules are loaded, nothing else is shared. Whatever goes wrong is told in
two ways: the traceback on stderr, for people, and one sentence in the report, which the server reads.
"""

import ast
import atexit
import gc
import json
import linecache
import os
import resource
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from .results import Encoded, encode_results, result_names

FILENAME = "<code>"
"""The name that executed code has in tracebacks."""

_BROKEN = 70
"""Exit status when this module failed, not the code."""

_SOFT_LIMITS: Mapping[str, int] = {
    "address_space_bytes": resource.RLIMIT_AS,
    "cpu_seconds": resource.RLIMIT_CPU,
    "file_size_bytes": resource.RLIMIT_FSIZE,
    "processes": resource.RLIMIT_NPROC,
}


def run_child(fds: tuple[int, int, int, int], data: Path, limits: Mapping[str, int | None]) -> NoReturn:
    """Run code in this freshly forked process and end it.

    Args:
        fds: Descriptors of the code, the report, stdout and stderr.
        data: Working directory; created if it vanished.
        limits: Soft resource limits by the names of `ExecutionLimits`; None means untouched.
    """
    status = _BROKEN
    try:
        code_fd, report_fd = _take_over(fds)
        data.mkdir(parents=True, exist_ok=True)
        os.chdir(data)
        code = _read_all(code_fd)
        _limit(limits)
        status = _run(code, report_fd, data)
    finally:
        os._exit(status)  # whatever happened: nothing may return into the fork server's loop


def _take_over(fds: tuple[int, int, int, int]) -> tuple[int, int]:
    """Make the four descriptors the only ones of this process, in places nobody else uses."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code_fd, report_fd, out_fd, err_fd = fds
    os.dup2(out_fd, 1)
    os.dup2(err_fd, 2)
    for fd in (code_fd, report_fd):
        os.set_inheritable(fd, False)
    keep = sorted((code_fd, report_fd))
    os.closerange(3, keep[0])
    os.closerange(keep[0] + 1, keep[1])
    os.closerange(keep[1] + 1, 4096)
    return code_fd, report_fd


def _read_all(fd: int) -> str:
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read().decode("utf-8", "surrogatepass")


def _limit(limits: Mapping[str, int | None]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, kind in _SOFT_LIMITS.items():
        wanted = limits.get(name)
        if wanted is not None:
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _run(code: str, report_fd: int, data: Path) -> int:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = [""]
    gc.enable()
    encoded = Encoded({}, [])

    def execute() -> None:
        nonlocal encoded
        tree = ast.parse(code, FILENAME)
        names = result_names(tree)
        exec(compile(tree, FILENAME, "exec"), module.__dict__)
        encoded = encode_results(names, module.__dict__, data)

    failure = _attempt(execute, code)
    failure = _attempt(_finish, code) or failure
    if failure:
        encoded = Encoded({}, [])
    report = {"results": encoded.results, "hints": encoded.hints, "failure": failure}
    with open(report_fd, "wb") as file:
        file.write(json.dumps(report).encode())
    return 1 if failure else 0


def _attempt(step: Callable[[], None], code: str) -> str | None:
    """Run code that is not ours; gives what went wrong in one sentence, and prints the traceback."""
    try:
        step()
    except SystemExit as stop:
        return _exit_sentence(stop)
    except BaseException as error:  # whatever the code raises is its caller's to know, and is told in the report
        _print_traceback(error, code)
        return _sentence(error)
    return None


def _finish() -> None:
    """Do what the interpreter does at its end: wait for threads that are no daemons, run exit functions, flush."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()


def _sentence(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]


def _exit_sentence(stop: SystemExit) -> str | None:
    if stop.code is None or stop.code == 0:
        return None
    if isinstance(stop.code, int):
        return f"The code ended itself with exit status {stop.code}."
    return f"The code ended itself: {stop.code}"


def _print_traceback(error: BaseException, code: str) -> None:
    """Print the traceback from the code's first line on, with the lines of the code in it."""
    lines = code.splitlines(keepends=True)
    linecache.cache[FILENAME] = (len(code), None, lines, FILENAME)
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename != FILENAME:
        first = first.tb_next
    traceback.print_exception(type(error), error, first, file=sys.__stderr__)
