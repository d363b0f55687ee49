"""On a tmpfs a write through a memory map leaves no trace in a file's times; the witness sees that somebody could have made one."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner_image.seals import WrittenSeal, read_seals, restore, witnessing, write_seal
from runner_image.seals.known import records_mapped_writes
from tests.runner_image.seals import trees
from tests.runner_image.seals.test_writer import SETTLED_SECONDS

AGENT = """
import array, mmap, os, socket, sys

def scribble(path, keep=None):
    file = os.open(path, os.O_RDWR)
    page = mmap.mmap(file, 0)
    page[0:1] = page[0:1].upper()
    if keep is None:
        os.close(file)
        page.close()
    return file

"""
"""A program behind the wall: it writes through a map, of a page that it read first."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder on a file system that does not note writes through maps."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("there is no tmpfs at /dev/shm")
    with tempfile.TemporaryDirectory(dir=shared) as name:
        folder = os.open(name, os.O_RDONLY)
        recorded = records_mapped_writes(folder)
        os.close(folder)
        if recorded:
            pytest.skip("this kernel's tmpfs notes writes through maps")
        root = Path(name) / "workspace"
        for above in ("a", "b"):
            (root / above).mkdir(parents=True)
        for file in ("a/one", "b/one", "a/other"):  # names, sizes and times alike
            (root / file).write_text(f"same size {file[0]}")
            os.utime(root / file, (1e9, 1e9))
        (Path(name) / "out").mkdir()
        (Path(name) / "elsewhere").mkdir()
        time.sleep(SETTLED_SECONDS)
        yield Path(name)


def sealed(place: Path) -> WrittenSeal:
    return write_seal(place / "workspace", place / "out", stem="turn-001-seal", turn_number=1)


def run(place: Path, program: str, *, pass_fds: tuple[int, ...] = ()) -> None:
    subprocess.run([sys.executable, "-c", AGENT + program], cwd=place / "workspace", check=True, pass_fds=pass_fds, timeout=60)


@pytest.mark.parametrize(
    "program",
    [
        "scribble('a/one')",
        "os.link('a/one', '../elsewhere/x'); scribble('../elsewhere/x'); os.unlink('../elsewhere/x')",
        "os.rename('a/one', '../elsewhere/x'); scribble('../elsewhere/x'); os.rename('../elsewhere/x', 'a/one')",
        "os.rename('a', '../elsewhere/a'); scribble('../elsewhere/a/one'); os.rename('../elsewhere/a', 'a')",
        "os.rename('a', 'x'); os.rename('b', 'a'); os.rename('x', 'b')",
        "scribble('/proc/self/fd/%d' % os.open('a/one', os.O_RDONLY))",
        "os.close(scribble('a/one', keep=True))",
        "os.fork() or os._exit(scribble('a/one') * 0); os.wait()",
        "stamp = os.stat('a/one'); open('a/one', 'w').write('SAME SIZE a'); os.utime('a/one', ns=(stamp.st_atime_ns, stamp.st_mtime_ns))",
    ],
    ids=["map", "link", "renamed", "folder-moved", "folders-swapped", "reopened", "closed-before-unmapped", "child", "time-set-back"],
)
def test_no_change_is_missed(place: Path, program: str) -> None:
    """Whatever the agent does to hide it, the second seal holds the tree as it is."""
    first = sealed(place)
    root = place / "workspace"
    with witnessing(root, first.known) as witness:
        run(place, program)
        testimony = witness.testify()
        assert testimony is not None
        second = write_seal(root, place / "out", stem="turn-002-seal", turn_number=2, parent=first.known, testimony=testimony)
    back = place / "back"
    back.mkdir()
    restore(read_seals([*first.parts, *second.parts]), back)
    assert trees.facts(back) == trees.facts(root)
    assert second.index.tree_sha256 != first.index.tree_sha256


def test_a_descriptor_hidden_in_a_message_hides_nothing(place: Path) -> None:
    """The file is open still when the seal is written, so no closing was told; the kernel says that somebody may write to it."""
    first = sealed(place)
    root = place / "workspace"
    ours, theirs = socket.socketpair()
    with ours, theirs, witnessing(root, first.known) as witness:
        program = "file = scribble('a/one', keep=True); socket.send_fds(socket.socket(fileno={0}), [b'x'], [file])"
        run(place, program.format(theirs.fileno()), pass_fds=(theirs.fileno(),))
        testimony = witness.testify()
        assert testimony is not None
        assert "a/one" in testimony.opened - testimony.written
        second = write_seal(root, place / "out", stem="turn-002-seal", turn_number=2, parent=first.known, testimony=testimony)
    assert second.index.tree_sha256 != first.index.tree_sha256
    assert set(second.known.stamps) == {"b/one", "a/other"}


def test_a_file_that_is_open_for_writing_gets_no_stamp(place: Path) -> None:
    """Whoever has it could write on through a map, so the next seal reads it again."""
    with (place / "workspace" / "a" / "one").open("r+b"):
        assert set(sealed(place).known.stamps) == {"b/one", "a/other"}


def test_what_was_only_read_is_not_read_again(place: Path) -> None:
    """A change from before the witness began would be missed: nothing but the runner may run then."""
    first = sealed(place)
    root = place / "workspace"
    run(place, "scribble('a/one'); scribble('a/other')")
    with witnessing(root, first.known) as witness:
        run(place, "open('a/one').read()")
        testimony = witness.testify()
    assert testimony is not None
    assert (testimony.written, testimony.opened) == (frozenset(), frozenset({"a/one"}))
    kept = write_seal(root, place / "out", stem="turn-002-seal", turn_number=2, parent=first.known, testimony=testimony)
    again = write_seal(root, place / "out", stem="turn-002-again", turn_number=2, parent=first.known)
    assert kept.new_bytes == 0
    assert again.new_bytes == len("Same size a")  # the same in both, hence stored once


def test_a_witness_leaves_nothing_behind(place: Path) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    first = sealed(place)
    names = sorted(path.name for path in (place / "workspace").rglob("*"))
    with witnessing(place / "workspace", first.known):
        pass
    assert sorted(path.name for path in (place / "workspace").rglob("*")) == names
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_witness_without_stamps_to_watch_over_saw_nothing(place: Path) -> None:
    """Then nothing is watched, and the seal does not trust it."""
    with witnessing(place / "workspace", None) as witness:
        assert witness.testify() is None
