"""A large restore is shared with a second process, and neither outlives or outwaits the other."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from runner_image.errors import SealError
from runner_image.seals import SealLimits, WrittenSeal, read_seals, restore, write_seal
from runner_image.seals.laying import Content, Layout, runs
from runner_image.seals.sharing import accompanied
from tests.runner_image.seals import trees

ENOUGH = 64 * 1024 * 1024
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor a restore is never shared")


@pytest.fixture
def seal(tmp_path: Path) -> WrittenSeal:
    """Two turns of a tree that is worth sharing: odd names, one content under many names, and contents in many packs."""
    root = tmp_path / "root"
    root.mkdir()
    for number in range(12):
        (root / f"large-{number}").write_bytes(os.urandom(1_000_000) + bytes([number]) * 700_000)
    for name in (b"\xff\xfe", b"back\\slash", "\U0001f980".encode(), b"line\nline"):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(b"small" + name)
    for number in range(30):
        (root / f"same-{number}").write_bytes(bytes(1_500_000))
    (root / "empty").touch(0o640)
    limits = SealLimits(max_part_bytes=6_000_000)
    first = write_seal(root, tmp_path, stem="turn-001-seal", turn_number=1, limits=limits)
    for number in range(0, 12, 3):
        (root / f"large-{number}").write_bytes(os.urandom(2_100_000))
    return write_seal(root, tmp_path, stem="turn-002-seal", turn_number=2, parent=first.known, limits=limits)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("turn-*.tar"))


def children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def alive(pid: int) -> bool:
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


@contextmanager
def meeting_the_companion(what: signal.Signals) -> Iterator[list[int]]:
    """Send a signal to each process that is started within the block."""
    before, met, over = set(children()), list[int](), threading.Event()

    def meet() -> None:
        while not over.is_set():
            for pid in set(children()) - before - set(met):
                os.kill(pid, what)
                met.append(pid)

    thread = threading.Thread(target=meet)
    thread.start()
    try:
        yield met
    finally:
        over.set()
        thread.join()


def test_what_two_processes_restore_is_the_tree(seal: WrittenSeal, tmp_path: Path) -> None:
    back, before = tmp_path / "back", children()
    back.mkdir()
    restored = restore(read_seals(parts(tmp_path)), back)
    assert trees.facts(back) == trees.facts(tmp_path / "root")
    assert set(restored.known.stamps) == {entry.path for entry in seal.index.entries if entry.kind == "file"}
    assert children() == before


def test_a_restore_is_done_alone_when_the_second_process_is_killed(seal: WrittenSeal, tmp_path: Path) -> None:
    back = tmp_path / "back"
    back.mkdir()
    with meeting_the_companion(signal.SIGKILL) as met:
        restore(read_seals(parts(tmp_path)), back)
    assert met
    assert trees.facts(back) == trees.facts(tmp_path / "root")


def test_a_restore_is_done_alone_where_no_process_can_be_started(
    seal: WrittenSeal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = tmp_path / "back"
    back.mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    restore(read_seals(parts(tmp_path)), back)
    assert trees.facts(back) == trees.facts(tmp_path / "root")


def test_damage_that_either_process_finds_leaves_nothing(seal: WrittenSeal, tmp_path: Path) -> None:
    """One byte is changed in part after part, so the damage lies at the beginning, in the middle and at the end of the work."""
    back, before, refused = tmp_path / "back", children(), 0
    back.mkdir()
    for part in parts(tmp_path):
        sound = part.read_bytes()
        middle = len(sound) // 2
        part.write_bytes(sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :])
        try:
            restore(read_seals(parts(tmp_path)), back)
        except SealError:
            refused += 1
            assert not list(back.iterdir())
        else:  # in a content of the first turn that the second one does not have any more
            subprocess.run(["sh", "-c", 'rm -rf "$1" && mkdir "$1"', "sh", back], check=True)
        part.write_bytes(sound)
        assert children() == before
    assert refused > 2


class Waiting(Layout):
    """Lays nothing out, but lets the other process go first."""

    first: subprocess.Popen[bytes]

    def lay(self, run: tuple[int, int]) -> None:
        self.first.wait()


@pytest.mark.parametrize(
    ("part", "name", "error", "words"),
    [
        ("missing.tar", "file", SealError, r"'missing\.tar' cannot be read"),
        ("part.tar", "file", SealError, "'file' does not have the SHA-256"),
        ("part.tar", "part.tar", OSError, "File exists"),
    ],
    ids=["no part", "other bytes", "no place"],
)
def test_the_second_process_says_what_is_wrong(tmp_path: Path, part: str, name: str, error: type[Exception], words: str) -> None:
    (tmp_path / "part.tar").write_bytes(b"right")
    right = hashlib.sha256(b"right" if name != "file" else b"wrong").hexdigest()
    packs = [(number, number + 5, "", True, (str(tmp_path / part), 0, 5)) for number in (0, 5)]
    contents: list[Content] = [(number, number + 5, number // 5, right, [(name, 0o644, 0)]) for number in (0, 5)]
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        with accompanied(top, ENOUGH) as companion:
            assert companion
            layout = Waiting(top, packs, contents)
            layout.first = companion.process
            with pytest.raises(error, match=words):
                companion.share(layout, packs, contents)
    finally:
        os.close(top)


def test_the_second_process_ends_with_the_first(tmp_path: Path) -> None:
    """Killed before it gave any work: the pipe is closed then, and nobody waits for a turn for ever."""
    program = (
        "import os, sys, time\nfrom runner_image.seals.sharing import accompanied\n"
        f"with accompanied(os.open({str(tmp_path)!r}, os.O_RDONLY), {ENOUGH}) as companion:\n"
        "    print(companion.process.pid, flush=True)\n    time.sleep(0.2)\n    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_many_packs_are_cut_into_no_more_runs_than_a_pipe_has_room_for() -> None:
    contents: list[Content] = [(number, number + 1, number // 2, "", [("", 0, 0)]) for number in range(20_000)]
    cut = runs(contents)
    assert len(cut) <= 1000
    assert [first for first, _ in cut[1:]] == [last for _, last in cut[:-1]]
    assert (cut[0][0], cut[-1][1]) == (0, 20_000)
    assert runs([]) == []
