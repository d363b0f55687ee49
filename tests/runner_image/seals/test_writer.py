"""Writing seals: what is stored, what is trusted, what is left out, and what is left behind when it fails."""

import os
import resource
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from runner_image.errors import SealError
from runner_image.seals import SealLimits, WrittenSeal, excluding, keep, read_seals, recall, restore, write_seal
from tests.runner_image.seals import trees

SETTLED_SECONDS = 0.08
"""Longer than the time during which a fresh stamp is not trusted."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small workspace."""
    root = tmp_path / "workspace"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print('hello')\n")
    (root / "README.md").write_text("# hello\n")
    return root


@pytest.fixture
def out(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    out.mkdir()
    return out


def restored(tmp_path: Path, seals: list[WrittenSeal]) -> Path:
    back = tmp_path / f"back-{time.monotonic_ns()}"
    back.mkdir()
    restore(read_seals(part for seal in seals for part in seal.parts), back)
    return back


def test_a_chain_stores_only_what_is_new_and_is_bounded(root: Path, out: Path, tmp_path: Path) -> None:
    """The seal after the longest chain is a full one, and needs nothing of what came before."""
    (root / "data").write_bytes(os.urandom(50_000))
    seals: list[WrittenSeal] = []
    for number in range(1, 6):
        (root / "note").write_text(f"turn {number}")
        parent = seals[-1].known if seals else None
        seals.append(
            write_seal(root, out, stem=f"turn-{number:03}-seal", turn_number=number, parent=parent, limits=SealLimits(max_chain=3))
        )
    assert [seal.index.chain_length for seal in seals] == [1, 2, 3, 1, 2]
    assert [seal.new_bytes > 50_000 for seal in seals] == [True, False, False, True, False]
    assert trees.facts(restored(tmp_path, seals[3:])) == trees.facts(root)


def test_a_change_that_keeps_size_and_mtime_is_seen(root: Path, out: Path, tmp_path: Path) -> None:
    """Anybody can set the time of change of a content; nobody that of the inode."""
    path = root / "README.md"
    time.sleep(SETTLED_SECONDS)
    first = write_seal(root, out, stem="turn-001-seal", turn_number=1)
    before = path.stat()
    path.write_text("# HELLO\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = write_seal(root, out, stem="turn-002-seal", turn_number=2, parent=first.known, trust="always")
    assert "README.md" in first.known.stamps
    assert (restored(tmp_path, [first, second]) / "README.md").read_text() == "# HELLO\n"


def test_an_index_from_elsewhere_makes_no_file_pass_as_unchanged(root: Path, out: Path, tmp_path: Path) -> None:
    """A seal that was read from its parts has no stamps, so every file is read again."""
    first = write_seal(root, out, stem="turn-001-seal", turn_number=1)
    before = (root / "README.md").stat()
    (root / "README.md").write_text("# HELLO\n")
    os.utime(root / "README.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    parent = read_seals(first.parts).known
    second = write_seal(root, out, stem="turn-002-seal", turn_number=2, parent=parent, trust="always")
    assert not parent.stamps
    assert second.new_bytes == len("# HELLO\n")


def test_stamps_of_a_restored_tree_hold_in_the_next_seal(root: Path, out: Path, tmp_path: Path) -> None:
    """A turn that goes on in a fresh sandbox seals as fast as one that stayed; another process may do it."""
    first = write_seal(root, out, stem="turn-001-seal", turn_number=1)
    back = tmp_path / "back"
    back.mkdir()
    known = restore(read_seals(first.parts), back).known
    keep(known, tmp_path / "known")
    again = recall(tmp_path / "known")
    assert again == known
    assert set(known.stamps) == {"README.md", "src/main.py"}
    assert write_seal(back, out, stem="turn-002-seal", turn_number=2, parent=again, trust="always").new_bytes == 0


@pytest.mark.parametrize("damage", [b"", b"{}\n{}", b'{"index_sha256":"x","device":1,"stamps":{}}\n{}'], ids=["empty", "bare", "hash"])
def test_a_damaged_note_of_a_seal_is_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "known").write_bytes(damage)
    assert recall(tmp_path / "known") is None


def test_what_has_no_place_in_a_seal_is_named(root: Path, out: Path, tmp_path: Path, short_directory: Path) -> None:
    """Pipes and sockets are not opened, which could block for ever."""
    os.mkfifo(root / "pipe\n")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(short_directory / "s"))
        (short_directory / "s").rename(root / "socket")
        written = write_seal(root, out, stem="turn-001-seal", turn_number=1)
    assert sorted(item.path for item in written.left_out) == ["pipe\n", "socket"]
    assert written.index.left_out == written.left_out
    assert sorted(path.name for path in restored(tmp_path, [written]).iterdir()) == ["README.md", "src"]


def test_links_are_never_followed(root: Path, out: Path, tmp_path: Path) -> None:
    """A link to a folder or file outside is a link, also where it took the place of a folder."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("hidden")
    (root / "folder").symlink_to(tmp_path / "secret")
    (root / "file").symlink_to(tmp_path / "secret" / "key")
    written = write_seal(root, out, stem="turn-001-seal", turn_number=1)
    assert {entry.path: entry.kind for entry in written.index.entries}["folder"] == "symlink"
    assert written.new_bytes == len("print('hello')\n# hello\n")


def test_excluded_entries_stay_out_with_all_that_is_in_them(root: Path, out: Path) -> None:
    for name in ("node_modules/x/index.js", "src/a.pyc", "build/out/keep.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    written = write_seal(root, out, stem="s", turn_number=1, exclude=excluding(["node_modules", "*.pyc", "build/out"]))
    assert [entry.path for entry in written.index.entries] == ["README.md", "build", "src", "src/main.py"]
    assert not written.left_out


def test_what_is_above_a_limit_is_named(root: Path, out: Path) -> None:
    """A file full of holes claims a terabyte; reading it would never end."""
    with (root / "holes").open("wb") as file:
        file.truncate(2**40)
    written = write_seal(root, out, stem="s", turn_number=1)
    assert [item.path for item in written.left_out] == ["holes"]


def test_a_tree_of_too_many_entries_is_cut_and_said_so(root: Path, out: Path) -> None:
    written = write_seal(root, out, stem="s", turn_number=1, limits=SealLimits(max_entries=2))
    assert len(written.index.entries) == 2
    assert "more than 2 entries" in written.left_out[0].reason


def test_a_very_deep_tree_comes_back(root: Path, out: Path, tmp_path: Path) -> None:
    deep = root
    for _ in range(400):
        deep = deep / "d"
        deep.mkdir()
    (deep / "leaf").write_text("found")
    written = write_seal(root, out, stem="s", turn_number=1)
    assert (restored(tmp_path, [written]) / deep.relative_to(root) / "leaf").read_text() == "found"


def test_files_that_change_all_the_time_never_make_a_false_index(root: Path, out: Path, tmp_path: Path) -> None:
    """Each file is either whole as of one moment or named as left out; restoring proves the bytes."""
    done = threading.Event()

    def scribble() -> None:
        number = 0
        while not done.is_set():
            number += 1
            (root / "busy").write_bytes(b"%d" % (number % 10) * (3_000_000 if number % 2 else 1_000))
            (root / f"gone-{number % 5}").write_text("now")
            (root / f"gone-{(number + 2) % 5}").unlink(missing_ok=True)

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for number in range(1, 6):
            written = write_seal(root, out, stem=f"turn-{number:03}-seal", turn_number=number)
            back = restored(tmp_path, [written])
            assert (back / "README.md").read_text() == "# hello\n"
            assert len(written.index.entries) + len(written.left_out) >= 3
    finally:
        done.set()
        writer.join()


def test_documents_travel_as_plain_members(root: Path, out: Path, tmp_path: Path) -> None:
    """Anybody can read them with tar; the first member is the folder that the platform's gate wants to see."""
    (tmp_path / "log").write_text("line\n")
    extras: dict[str, bytes | Path] = {"transcript.jsonl": b"{}\n", "events.jsonl": tmp_path / "log", "absent.txt": tmp_path / "absent"}
    written = write_seal(root, out, stem="turn-001-seal", turn_number=1, extras=extras)
    chain = read_seals(written.parts)
    with tarfile.open(written.parts[0]) as archive:
        assert archive.getnames()[0] == "seal"
        assert archive.extractfile("seal/extra/transcript.jsonl").read() == b"{}\n"  # type: ignore[union-attr]
    assert (chain.extra("transcript.jsonl"), chain.extra("events.jsonl")) == (b"{}\n", b"line\n")
    assert [item.path for item in written.left_out] == ["extra:absent.txt"]
    with pytest.raises(SealError, match="no document"):
        chain.extra("absent.txt")


def test_nothing_is_overwritten(root: Path, out: Path) -> None:
    (out / "turn-001-seal.tar").write_text("the user's")
    with pytest.raises(SealError, match="overwrites nothing"):
        write_seal(root, out, stem="turn-001-seal", turn_number=1)
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("turn-001-seal.tar", "the user's")]


def test_what_a_killed_process_left_is_no_obstacle(root: Path, out: Path) -> None:
    (out / ".turn-001-seal.tar.partial").write_bytes(b"half")
    written = write_seal(root, out, stem="turn-001-seal", turn_number=1)
    assert list(out.iterdir()) == list(written.parts)


def test_a_full_disk_leaves_no_part_behind(root: Path, out: Path) -> None:
    """The kernel refuses to write beyond the limit, as it does on a full disk."""
    (root / "large").write_bytes(os.urandom(9_000_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(SealError, match="make room"):
            write_seal(root, out, stem="turn-001-seal", turn_number=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("stem", "turn", "extras", "told"),
    [
        ("../x", 2, {}, "stem"),
        ("s", 2, {"../x": b""}, "document"),
        ("s", 1, {}, "upwards"),
    ],
    ids=["stem", "document", "turn"],
)
def test_wrong_names_and_numbers_are_refused(root: Path, out: Path, stem: str, turn: int, extras: dict[str, bytes], told: str) -> None:
    first = write_seal(root, out, stem="first", turn_number=1)
    with pytest.raises(SealError, match=told):
        write_seal(root, out, stem=stem, turn_number=turn, parent=first.known, extras=extras)


UNREADABLE = """
import os, sys
from pathlib import Path
from runner_image.seals import write_seal
os.setgid(65534); os.setuid(65534)
root, out = map(Path, sys.argv[1:])
(root / "closed").mkdir(); (root / "closed" / "x").write_text("x"); (root / "file").write_text("y"); (root / "open").write_text("z")
(root / "closed").chmod(0); (root / "file").chmod(0)
written = write_seal(root, out, stem="s", turn_number=1)
(root / "closed").chmod(0o700)
print(*(item.path for item in written.left_out), "|", *(entry.path for entry in written.index.entries))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user, to whom files can be unreadable")
def test_unreadable_files_are_named(short_directory: Path) -> None:
    """The user id that may read everything sees no difference, so this becomes another one."""
    short_directory.chmod(0o755)
    places = [short_directory / "root", short_directory / "out"]
    for place in places:
        place.mkdir()
        os.chown(place, 65534, 65534)
    done = subprocess.run([sys.executable, "-c", UNREADABLE, *places], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "file closed | closed open", done.stderr


CLOSED_FOLDERS = """
import os, sys
from pathlib import Path
from runner_image.seals import hash_tree, read_seals, restore, write_seal
os.setgid(65534); os.setuid(65534)
root, back = map(Path, sys.argv[1:])
(root / "a" / "b").mkdir(parents=True); (root / "a" / "b" / "x").write_text("x"); (root / "a" / "b" / "x").chmod(0o444)
(root / "a" / "b").chmod(0o555); (root / "a").chmod(0o555)
written = write_seal(root, root.parent, stem="s", turn_number=1)
restore(read_seals(written.parts), back)
print(hash_tree(back) == written.index.tree_sha256, oct((back / "a").stat().st_mode))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user, whom folders can forbid writing")
def test_folders_that_forbid_writing_come_back(short_directory: Path) -> None:
    """They are filled first and closed at the very end."""
    places = [short_directory / "root", short_directory / "back"]
    for place in places:
        place.mkdir()
        os.chown(place, 65534, 65534)
    short_directory.chmod(0o777)
    done = subprocess.run([sys.executable, "-c", CLOSED_FOLDERS, *places], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True 0o40555", done.stderr
