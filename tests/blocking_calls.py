"""Notices blocking calls that our source makes on a running event loop.

Built on the interpreter's audit events: they cost next to nothing, patch no module, and see `open` and `subprocess` however
they are reached. A call in a worker thread has no running loop and is never noticed. Child processes are not watched.
"""

import asyncio
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, SupportsIndex

ROOT = Path(__file__).resolve().parents[1]
SOURCE = tuple(f"{ROOT / package}/" for package in ("context_client", "orchestration_service", "runner_image", "workflow_schemas"))
TESTS = f"{ROOT / 'tests'}/"
Seconds = float | SupportsIndex
ASYNC_CODE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

WATCHED = frozenset(
    {"open", "time.sleep", "subprocess.Popen", "os.system", "os.listdir", "os.scandir", "sqlite3.connect", "socket.getaddrinfo"}
    | {"shutil.copyfile", "shutil.copytree", "shutil.move", "shutil.rmtree", "shutil.make_archive", "shutil.unpack_archive"}
)

INNOCENT = (
    "<frozen importlib",  # a first import
    "importlib/",  # package data and metadata, read once
    "/linecache.py",  # the source lines of a traceback
    "/asyncio/unix_events.py",  # asyncio starts its own subprocesses and sockets this way
    "/asyncio/base_subprocess.py",
    "/mimetypes.py",  # reads the system's table once
)
"""Files (a part of the name) whose calls are forgiven when they come between our source and the blocking call."""

ALLOWED: Mapping[str, str] = {}
"""`path:function` in our source that may block on the loop, and why."""


@dataclass
class BlockingCalls:
    """The audit hook. It can't be taken off again, so it is added once and switched."""

    found: list[str] = field(default_factory=list)
    is_watching: bool = False

    def install(self) -> None:
        """Begin to receive the interpreter's audit events."""
        sys.addaudithook(self)
        if sys.version_info < (3, 13):
            time.sleep = _audited(time.sleep)  # later versions tell by themselves

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_watching and event in WATCHED and asyncio._get_running_loop() is not None:
            place = _source_of(sys._getframe(1))
            if place:
                self.found.append(f"{place} calls {event}{arguments[:1]!r}")

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Notice calls until the end of the block."""
        self.found.clear()
        self.is_watching = True
        try:
            yield self.found
        finally:
            self.is_watching = False


def _audited(sleep: Callable[[Seconds], None]) -> Callable[[Seconds], None]:
    def audited(seconds: Seconds) -> None:
        sys.audit("time.sleep", seconds)
        sleep(seconds)

    return audited


def _source_of(frame: FrameType | None) -> str:
    """The innermost function of our source on the stack, or nothing where the call is innocent.

    A plain function of ours that a test calls directly, to set something up, is the test's business; a coroutine of ours is not.
    """
    place = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(SOURCE):
            place = place or f"{Path(file).relative_to(ROOT).as_posix()}:{frame.f_code.co_qualname}"
            if frame.f_code.co_flags & ASYNC_CODE:
                break
        elif not place and any(part in file for part in INNOCENT):
            return ""
        elif file.startswith(TESTS) and file != __file__:
            return ""
        frame = frame.f_back
    return "" if place in ALLOWED else place
