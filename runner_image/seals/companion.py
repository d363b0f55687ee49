"""The second process of a restore: lays out the runs of contents from the last one on, until it meets the first process.

It imports next to nothing and is ready in some 25 ms (`sharing` starts it). Its standing is that of the first process: the same files,
the same checks, the same code (`laying`). What it did goes back as stamps, what went wrong as words.
"""

import marshal
import os
from collections.abc import Sequence
from io import FileIO

from runner_image.errors import SealError
from runner_image.seals.laying import Layout, Stamp

TURN = b"\1"
"""Whoever takes one of these from the pipe may do one more run."""

Said = tuple[dict[str, Stamp], str, int]
"""Stamps by path; what is wrong with the seal, in words; number of the system's error. Only one of them says something."""


def main(arguments: Sequence[str]) -> None:
    """Help, and end the process.

    Args:
        arguments: The first process's number, and the descriptors of the folder, the turns, the work and the answer.
    """
    parent, top, turns, work, answer = map(int, arguments)
    said: Said
    try:
        said = _laid_out(parent, top, turns, work), "", 0
    except SealError as error:
        said = {}, str(error), 0
    except OSError as error:
        said = {}, "", error.errno or 0
    with FileIO(answer, "w") as file:
        file.write(marshal.dumps(said))
    os._exit(0)  # the first process waits, and taking an interpreter apart takes milliseconds


def _laid_out(parent: int, top: int, turns: int, work: int) -> dict[str, Stamp]:
    layout: Layout | None = None
    left: list[tuple[int, int]] = []
    while os.read(turns, 1) == TURN and os.getppid() == parent:  # nobody wants the files of a restore that was killed
        if layout is None:  # the work is there when the first turn is
            with FileIO(work) as file:
                packs, contents, left = marshal.loads(file.readall())
            layout = Layout(top, packs, contents)
        layout.lay(left.pop())
    return layout.stamps if layout else {}
