"""What happens inside the process of one execution, from the fork to its end.

The process is a copy of the fork server: modules are loaded, nothing else is shared. Whatever goes wrong is told in
two ways: the traceback on stderr, for people, and one sentence in the report, which the server reads.
"""

import ast
import atexit
import contextlib
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
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from .results import encode_results, result_names

FILENAME = "<code>"
"""The name that executed code has in tracebacks."""

_SOFT_LIMITS = {
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
    status = 70
    try:
        code_fd, report_fd = _take_over(fds)
        data.mkdir(parents=True, exist_ok=True)
        os.chdir(data)
        code = _read_all(code_fd)
        _limit(limits)
        status = _run(code, report_fd, data)
    except BaseException:  # nothing may return into the fork server's loop
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(status)


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
    failure: str | None = None
    names: tuple[str, ...] = ()
    try:
        tree = ast.parse(code, FILENAME)
        names = result_names(tree)
        exec(compile(tree, FILENAME, "exec"), module.__dict__)  # noqa: S102 - it is what this process is for
    except SystemExit as stop:
        failure = _exit_sentence(stop)
    except BaseException as error:  # told to the caller below, whatever it is
        failure = _sentence(error)
        _print_traceback(error, code)
    results = {} if failure else encode_results(names, module.__dict__, data)
    _finish_threads()
    with open(report_fd, "wb") as report:
        report.write(json.dumps({"results": results, "failure": failure}).encode())
    return 1 if failure else 0


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
    with contextlib.suppress(Exception):  # stdout may be a closed or replaced object; the sentence is still told
        sys.stdout.flush()
    traceback.print_exception(type(error), error, first, file=sys.__stderr__)


def _finish_threads() -> None:
    """Do what the interpreter does at its end: wait for threads that are no daemons, run exit functions."""
    with contextlib.suppress(Exception):  # an exit function of the code may raise; the interpreter ignores it too
        threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
