"""Shares the work of a restore with a second process: creating thousands of files and hashing them keeps one interpreter busy.

Threads do not help there, since they take turns in one interpreter (measured on two CPUs: 195 ms with two threads, 140 with two
processes, 270 alone). The second process is a fresh interpreter and no fork, because the runner has threads. The first process works from
the first run of contents on and the second one from the last; a pipe holds one turn for each run, so they meet wherever they do, and
however late the second one is ready. Whatever befalls the restore, the second process has ended when `accompanied` has.
"""

import marshal
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import runner_image
from runner_image.errors import SealError
from runner_image.seals.companion import TURN, Said
from runner_image.seals.laying import Content, Layout, Pack, Stamp, runs
from runner_image.seals.stored import zstd

_NO_TURN = b"\0"
_WORTH_BYTES = 32 * 1024 * 1024  # below 16 MB it takes longer, on a busy machine below 64
_PROGRAM = "import sys; sys.path.extend(sys.argv[1:3]); from runner_image.seals.companion import main; main(sys.argv[3:])"


class CompanionLost(Exception):
    """The second process ended before it had done its share; the restore can be done alone."""


@dataclass(frozen=True)
class Companion:
    """A second process that waits for work."""

    process: subprocess.Popen[bytes]
    turns: int
    """Pipe to take a turn from."""

    given: int
    """Pipe to put turns into."""

    work: int
    answer: int

    def share(self, layout: Layout, packs: list[Pack], contents: list[Content]) -> None:
        """Lay everything out together.

        Raises:
            SealError: A part cannot be read, or a content is not what the index states.
            OSError: A file cannot be written.
            CompanionLost: The second process was killed, for instance.
        """
        todo = runs(contents)
        with open(self.work, "wb", closefd=False) as file:
            file.write(marshal.dumps((packs, contents, todo)))
        os.lseek(self.work, 0, os.SEEK_SET)  # the position is shared with the other one
        os.write(self.given, TURN * len(todo) + _NO_TURN * 2)
        mine = 0
        while mine < len(todo) and os.read(self.turns, 1) == TURN:
            layout.lay(todo[mine])
            mine += 1
        if mine < len(todo):
            layout.stamps.update(self._stamps())

    def _stamps(self) -> dict[str, Stamp]:
        if self.process.wait() != 0:
            raise CompanionLost
        os.lseek(self.answer, 0, os.SEEK_SET)
        with open(self.answer, "rb", closefd=False) as file:
            said: Said = marshal.loads(file.read())
        stamps, words, number = said
        if words:
            raise SealError(words)
        if number:
            raise OSError(number, os.strerror(number))
        return stamps


@contextmanager
def accompanied(top: int, size_bytes: int) -> Iterator[Companion | None]:
    """Start a second process where that pays and is possible; it ends with the block.

    Args:
        top: Descriptor of the folder that the tree is laid out in.
        size_bytes: Size of the tree.
    """
    with ExitStack() as stack:
        companion = None
        if size_bytes >= _WORTH_BYTES and len(os.sched_getaffinity(0)) > 1:
            try:
                companion = _started(top, stack)
            except OSError:  # no process, or no descriptor, is to be had: then it takes longer
                companion = None
        yield companion


def _started(top: int, stack: ExitStack) -> Companion:
    turns, given = os.pipe()
    stack.callback(os.close, turns)
    stack.callback(os.close, given)
    work = os.memfd_create("seal-work")
    stack.callback(os.close, work)
    answer = os.memfd_create("seal-answer")
    stack.callback(os.close, answer)
    theirs = (top, turns, work, answer)
    roots = [str(Path(module.__file__ or "").parents[levels]) for module, levels in ((runner_image, 1), (zstd, 2))]
    line = [sys.executable, "-I", "-S", "-c", _PROGRAM, *roots, *map(str, (os.getpid(), *theirs))]
    process = subprocess.Popen(line, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=theirs)
    stack.callback(_end, process)
    return Companion(process, turns, given, work, answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
