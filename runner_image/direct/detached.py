"""Calls that outlive the execution which started them: each a process of its own, whose events are the lines of a file.

A platform cuts an execution after minutes and shows nothing of it before its end. So a call runs detached, and short executions start
it, look at what it has written since, or end it. Its caller names it: starting it twice starts it once. A call is at work as long as
it holds the lock on a file of its own, which no reused process number can pretend.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner_image.direct.errors import AnotherAtWork, BadOrder
from runner_image.places import Places

_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_KEPT_CALLS = 4
_LAST_WORDS = 1000
_TAIL_BYTES = 64 * 1024
_STEP_SECONDS = 0.05
_LEAVE_SECONDS = 10.0
_GATHER_SECONDS = 0.1  # an execution costs more than an event: let those that follow closely ride along
_INTERRUPT_SECONDS = 8.0
_KILL_SECONDS = 2.0


@dataclass(frozen=True)
class Piece:
    """What a call has written from some place on."""

    lines: tuple[bytes, ...]
    """Whole lines, without their ends."""

    next: int
    """Where to go on reading."""

    ended: bool
    """True when the call is over and nothing follows."""

    left_out: int = 0
    """Bytes of lines that were longer than a piece may be."""


class DetachedCalls:
    """The calls of one sandbox; everything blocks for a moment."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._folder = places.state / "calls"

    @contextmanager
    def door(self) -> Iterator[None]:
        """Keep others out who would start, clear or look at the same time."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._places.state / "desk.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def generation(self) -> str:
        """Return what tells this sandbox from one that takes its place later: made up at first use, gone with its files."""
        path = self._places.state / "generation"
        try:
            return path.read_text(encoding="ascii")
        except FileNotFoundError:
            made_up = secrets.token_hex(16)
            path.write_text(made_up, encoding="ascii")
            return made_up

    def start(self, name: str, order: Mapping[str, object]) -> None:
        """Start a call, unless one of that name was started before.

        Raises:
            AnotherAtWork: Another call has not ended yet.
            BadOrder: The name is none.
        """
        folder = self._of(name)
        if folder.exists():
            return
        self.await_end()
        self._forget_old()
        folder.mkdir(mode=0o700)
        alive = os.open(folder / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / "pid").write_text(str(self._launch(folder, alive, order)), encoding="ascii")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(alive)  # the process has its own copy, and the lock with it

    def await_end(self) -> None:
        """Wait for a call that has told its last event and only has to leave.

        Raises:
            AnotherAtWork: A call is at work.
        """
        deadline = time.monotonic() + _LEAVE_SECONDS
        while (running := self.running()) is not None:
            if time.monotonic() > deadline or not _told_its_end(self._of(running)):
                raise AnotherAtWork(running)
            time.sleep(_STEP_SECONDS)

    def running(self) -> str | None:
        """Name the call that is at work."""
        return next((folder.name for folder in self._newest_first() if _at_work(folder)), None)

    def at_work(self) -> str | None:
        """Name the call that has not told its last event."""
        running = self.running()
        return None if running is None or _told_its_end(self._of(running)) else running

    def last(self) -> str | None:
        """Name the call that was started last."""
        return next((folder.name for folder in self._newest_first()), None)

    def knows(self, name: str) -> bool:
        """Say whether a call of that name was started in this sandbox, not long ago."""
        return self._of(name).is_dir()

    def read(self, name: str, after: int, most_bytes: int, wait_seconds: float) -> Piece:
        """Return what a call has written, waiting for something new.

        Args:
            name: A call that `knows` knows.
            after: Where the last piece ended.
            most_bytes: Longest piece; a single line beyond it is left out.
            wait_seconds: How long to wait while there is nothing.
        """
        folder = self._of(name)
        deadline = time.monotonic() + wait_seconds
        while True:
            piece = _read(folder, after, most_bytes)
            left = deadline - time.monotonic()
            if piece.ended or left <= 0:
                return piece
            if piece.lines or piece.left_out:
                time.sleep(min(_GATHER_SECONDS, left))
                return _read(folder, after, most_bytes)
            time.sleep(min(_STEP_SECONDS, left))

    def last_words(self, name: str) -> str:
        """Return the end of what a call wrote on standard error."""
        with contextlib.suppress(OSError):
            return (self._of(name) / "stderr").read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        return ""

    def stop(self, name: str) -> bool:
        """Interrupt a call, and kill it if it does not end; False if it still has not."""
        folder = self._of(name)
        if not _at_work(folder):
            return True
        process = int((folder / "pid").read_text(encoding="ascii"))
        for number, seconds in ((signal.SIGINT, _INTERRUPT_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number) if number == signal.SIGINT else os.killpg(process, number)
            deadline = time.monotonic() + seconds
            while _at_work(folder) and time.monotonic() < deadline:
                time.sleep(_STEP_SECONDS)
            if not _at_work(folder):
                return True
        return False

    def forget(self) -> None:
        """Remove what ended calls have left."""
        for folder in self._newest_first():
            shutil.rmtree(folder, ignore_errors=True)

    def _launch(self, folder: Path, alive: int, order: Mapping[str, object]) -> int:
        # over a descriptor: a message is too long for a command line, and a key in one could be read there
        stdin = os.memfd_create("order", os.MFD_CLOEXEC)
        try:
            with open(stdin, "wb", closefd=False) as file:
                file.write(json.dumps(order).encode("ascii"))
            os.lseek(stdin, 0, os.SEEK_SET)
            with (folder / "events").open("wb") as out, (folder / "stderr").open("wb") as err:
                words = [sys.executable, "-P", "-m", "runner_image.direct.call", str(alive)]
                process = subprocess.Popen(words, stdin=stdin, stdout=out, stderr=err, pass_fds=[alive], cwd="/", start_new_session=True)
        finally:
            os.close(stdin)
        return process.pid

    def _of(self, name: str) -> Path:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadOrder(f"{name!r} is no name of a call.")
        return self._folder / name

    def _newest_first(self) -> list[Path]:
        folders = [path for path in self._folder.iterdir() if path.is_dir()] if self._folder.is_dir() else []
        return sorted(folders, key=lambda path: path.stat().st_ctime_ns, reverse=True)

    def _forget_old(self) -> None:
        for folder in self._newest_first()[_KEPT_CALLS - 1 :]:
            shutil.rmtree(folder, ignore_errors=True)


def _at_work(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / "alive", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read(folder: Path, after: int, most_bytes: int) -> Piece:
    over = not _at_work(folder)  # asked first: what is read afterwards is then all there will ever be
    with (folder / "events").open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(min(max(after, 0), size))
        begin = file.tell()
        data = file.read(most_bytes)
        end = data.rfind(b"\n") + 1
        if end:
            return Piece(tuple(data[: end - 1].split(b"\n")), begin + end, over and begin + end == size)
        if len(data) < most_bytes and not over:
            return Piece((), begin, False)
        while data and b"\n" not in data:  # longer than a piece, or broken off: pass over it
            data = file.read(most_bytes)
        end = file.tell() - len(data) + data.find(b"\n") + 1 if data else file.tell()
        if not data and not over:
            return Piece((), begin, False)
        return Piece((), end, over and end == size, left_out=end - begin)


def _told_its_end(folder: Path) -> bool:
    with (folder / "events").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    return last.startswith((b'{"type": "done"', b'{"type": "error"'))
