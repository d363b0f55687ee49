"""Random trees and edits for property tests, and a look at a tree that shares nothing with the code under test."""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

Facts = dict[bytes, tuple[object, ...]]

_odd_names = st.sampled_from(
    [
        b"a",
        b"b",
        b"a b",
        b"new\nline",
        b"quo\"te'",
        b"back\\slash",
        b"\\x41",
        "emoji-\U0001f980".encode(),
        b"\xff\xfe",
        b"-rf",
        b"~",
        b"n" * 255,
    ]
)
_names = st.one_of(
    _odd_names, st.binary(min_size=1, max_size=12).filter(lambda name: not set(name) & {0, 47} and name not in (b".", b".."))
)
_folders = st.lists(_names, max_size=3)
_contents = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"same content", b"text\n" * 3000, bytes(100_000)]),
    st.integers(0, 5).map(lambda seed: bytes((seed + i * i * 31) % 251 for i in range(9000))),
)
_IS_ROOT = os.geteuid() == 0  # others cannot read, or change, what forbids it to its owner
_file_modes = st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o666, 0o777, 0o000 if _IS_ROOT else 0o400])
_folder_modes = st.sampled_from([0o755, 0o700, 0o777, 0o555 if _IS_ROOT else 0o711])
_targets = st.one_of(st.sampled_from([b"/etc/passwd", b"../..", b"a", b"missing\n", b"\xff"]), _names)


@dataclass(frozen=True)
class Edit:
    """One change of a tree; what is in the way is taken away first."""

    folders: tuple[bytes, ...]
    name: bytes
    kind: str
    content: bytes
    mode: int


def _edit(kind: str, content: st.SearchStrategy[bytes], mode: st.SearchStrategy[int]) -> st.SearchStrategy[Edit]:
    return st.builds(Edit, _folders.map(tuple), _names, st.just(kind), content, mode)


edits = st.one_of(
    _edit("file", _contents, _file_modes),
    _edit("file", _contents, _file_modes),
    _edit("symlink", _targets, st.just(0)),
    _edit("directory", st.just(b""), _folder_modes),
    _edit("hardlink", st.just(b"both names"), _file_modes),
    _edit("delete", st.just(b""), st.just(0)),
)
turns = st.lists(st.lists(edits, max_size=12), min_size=1, max_size=4)


def apply(root: bytes, edit: Edit) -> None:
    """Make a change on disk."""
    here = root
    for part in edit.folders:
        here = here + b"/" + part
        if os.path.lexists(here) and not stat.S_ISDIR(os.lstat(here).st_mode):
            os.unlink(here)  # noqa: PTH108  # names are bytes here, which Path cannot hold
        Path(os.fsdecode(here)).mkdir(exist_ok=True)
    place = Path(os.fsdecode(here + b"/" + edit.name))
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir() and edit.kind != "directory":
        shutil.rmtree(place)
    if edit.kind == "directory":
        place.mkdir(exist_ok=True)
        place.chmod(edit.mode)
    elif edit.kind == "symlink":
        place.symlink_to(os.fsdecode(edit.content))
    elif edit.kind in ("file", "hardlink"):
        place.write_bytes(edit.content)
        place.chmod(edit.mode)
        if edit.kind == "hardlink" and len(edit.name) < 250:
            second = place.with_name(place.name + "-too")
            if not os.path.lexists(second):
                second.hardlink_to(place)


def facts(root: Path) -> Facts:
    """Return what is on disk: kind, mode, bytes or target, and the time of change of each entry."""
    found: Facts = {}
    for here, folders, names in os.walk(os.fsencode(root)):
        for name in (*folders, *names):
            path = here + b"/" + name
            status = os.lstat(path)
            mode, key = stat.S_IMODE(status.st_mode), path[len(os.fsencode(root)) :]
            if stat.S_ISLNK(status.st_mode):
                found[key] = ("symlink", os.readlink(path), status.st_mtime_ns)  # noqa: PTH115
            elif stat.S_ISDIR(status.st_mode):
                found[key] = ("directory", mode, status.st_mtime_ns)
            else:
                found[key] = ("file", mode, Path(os.fsdecode(path)).read_bytes(), status.st_mtime_ns)
    return found
