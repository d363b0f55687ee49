"""Hostile and honest archives: a clear refusal or the right result, and nothing outside the workspace."""

import bz2
import gzip
import io
import lzma
import os
import random
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner_image.errors import InputError
from runner_image.inputs import unpack_inputs
from workflow_schemas.plan import InputFile, Limits

Entry = tuple[str, bytes | str | int]
"""A name, and content, target of a link, or type of something else."""


class Sandbox:
    """A file store, a workspace, and beside them something to be attacked."""

    def __init__(self, folder: Path) -> None:
        self.data, self.workspace, self.secret = folder / "data", folder / "workspace", folder / "secret"
        self.data.mkdir()
        self.workspace.mkdir()
        self.secret.mkdir()
        (self.secret / "key").write_text("secret")
        self._before = self._outside()

    def unpack(self, *names: str, **limits: int) -> list[str]:
        inputs = tuple(InputFile(name=name, kind="archive" if name.endswith((".tar", ".zip")) else "file") for name in names)
        return unpack_inputs(inputs, self.data, self.workspace, LIMITS.model_copy(update=limits))

    def refuses(self, *names: str, **limits: int) -> str:
        """The words of the refusal; whatever it was, nothing has changed outside."""
        with pytest.raises(InputError) as refused:
            self.unpack(*names, **limits)
        assert self._outside() == self._before
        return str(refused.value)

    def found(self) -> dict[str, str]:
        """What lies in the workspace: content of files, `-> target` of links, nothing for folders that hold something."""
        assert self._outside() == self._before
        found = {}
        for here, folders, names in os.walk(self.workspace):
            for name in [*names, *folders]:
                path = Path(here) / name
                shown = os.fsencode(path.relative_to(self.workspace)).decode(errors="backslashreplace")
                if path.is_symlink():
                    found[shown] = f"-> {os.readlink(path)}"  # noqa: PTH115
                elif path.is_file():
                    found[shown] = path.read_text() + ("*" if path.stat().st_mode & 0o111 else "")
                elif not any(path.iterdir()):
                    found[shown] = "/"
        return found

    def tar(self, *entries: Entry, name: str = "a.tar", **options: Any) -> str:
        with tarfile.open(self.data / name, "w", **options) as archive:
            for entry, what in entries:
                member = tarfile.TarInfo(entry)
                if isinstance(what, bytes):
                    member.size = len(what)
                    archive.addfile(member, io.BytesIO(what))
                else:
                    member.type = tarfile.SYMTYPE if isinstance(what, str) else bytes([what])
                    member.linkname = what if isinstance(what, str) else "key"
                    archive.addfile(member)
        return name

    def zip(self, *entries: tuple[str, bytes], name: str = "a.zip", mode: int = 0, system: int = 3) -> str:
        with zipfile.ZipFile(self.data / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, content in entries:
                info = zipfile.ZipInfo(entry)
                info.external_attr, info.create_system, info.compress_type = mode << 16, system, zipfile.ZIP_DEFLATED
                archive.writestr(info, content)
        return name

    def _outside(self) -> list[tuple[str, bytes]]:
        return [(str(path), path.read_bytes()) for path in sorted(self.secret.rglob("*"))] + [
            (path.name, b"") for path in self.secret.parent.iterdir()
        ]


LIMITS = Limits(
    soft_seconds=1,
    hard_seconds=1,
    max_turns=1,
    command_timeout_seconds=1,
    max_output_bytes=1024,
    max_unpacked_bytes=1 << 20,
    max_files=1000,
)
HARD = tarfile.LNKTYPE[0]


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([("p/a", b"1"), ("p/b/c", b"2")], {"a": "1", "b/c": "2"}),
        ([("./p/a", b"1"), ("./p", tarfile.DIRTYPE[0])], {"a": "1"}),
        ([("p/a", b"1"), ("q", b"2")], {"p/a": "1", "q": "2"}),
        ([("a", b"1")], {"a": "1"}),
        ([(".git/HEAD", b"1")], {".git/HEAD": "1"}),
        ([("p/.git/HEAD", b"1"), ("p/a", b"2")], {".git/HEAD": "1", "a": "2"}),
        ([("/etc/passwd", b"1"), ("//etc/shadow", b"2")], {"passwd": "1", "shadow": "2"}),
        ([("a//b/./c", b"1"), ("x", b"2")], {"a/b/c": "1", "x": "2"}),
        ([("a\\b", b"1"), ("x", b"2")], {"a\\b": "1", "x": "2"}),
        ([("😀/ä", b"1"), ("x y\n", b"2")], {"😀/ä": "1", "x y\n": "2"}),
        ([("f\udcff", b"1"), ("x", b"2")], {"f\\xff": "1", "x": "2"}),
        ([("a", b"1"), ("a", b"2")], {"a": "2"}),
        ([("d", tarfile.DIRTYPE[0]), ("a", b"")], {"d": "/", "a": ""}),
        ([], {}),
    ],
    ids=["top folder", "dotted top", "two tops", "one file", "git at the top", "git below the top", "absolute", "odd slashes", "backslash"]
    + ["emoji", "not UTF-8", "twice", "empties", "nothing"],
)
def test_a_tar_becomes_the_workspace(sandbox: Sandbox, entries: Sequence[Entry], expected: dict[str, str]) -> None:
    name = sandbox.tar(*entries)
    remarks = sandbox.unpack(name)
    assert sandbox.found() == expected
    assert remarks[0].startswith("a.tar: ")
    assert not (sandbox.data / name).exists(), "an input is taken out of the file store"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("../out", b"1")], "leaves the workspace"),
        ([("a/../../out", b"1")], "leaves the workspace"),
        ([("/../out", b"1")], "leaves the workspace"),
        ([("n" * 300, b"1")], "longer than 255"),
        ([("a/" * 150 + "b", b"1"), ("c", b"1")], "too deep"),
        ([(f"{'n' * 250}/" * 20 + "b", b"1"), ("c", b"1")], "too long"),
        ([("a", b"1"), ("a/b", b"2")], "both as a folder and as a file"),
        ([("a/b", b"1"), ("a", b"2")], "both as a folder and as a file"),
        ([("l", "../secret"), ("l/key", b"stolen")], "both as a folder"),
        ([("l", "../secret"), ("h", HARD)], "hard link"),
        ([("key", HARD)], "hard link"),
        ([("a", "")], "without a target"),
        ([("a", "x" * 4000)], "too long"),
    ],
    ids=["parent", "later parent", "absolute parent", "long name", "deep", "long path", "file then folder", "folder then file"]
    + ["through a link", "hard link to nothing", "hard link to itself", "link to nothing", "long target"],
)
def test_a_hostile_tar_is_refused_in_words(sandbox: Sandbox, entries: Sequence[Entry], words: str) -> None:
    assert words in sandbox.refuses(sandbox.tar(*entries))


def test_links_are_kept_as_links(sandbox: Sandbox) -> None:
    """Also those that point out of the tree or nowhere; nothing follows them here."""
    sandbox.unpack(sandbox.tar(("a", b"1"), ("in", "a"), ("out", "/etc/passwd"), ("up", "../secret/key"), ("no", "nowhere")))
    assert sandbox.found() == {"a": "1", "in": "-> a", "out": "-> /etc/passwd", "up": "-> ../secret/key", "no": "-> nowhere"}


def test_a_later_member_replaces_a_link(sandbox: Sandbox) -> None:
    sandbox.unpack(sandbox.tar(("key", "../secret/key"), ("key", b"mine"), ("x", b"1")))
    assert sandbox.found() == {"key": "mine", "x": "1"}


def test_a_hard_link_becomes_a_copy(sandbox: Sandbox) -> None:
    sandbox.unpack(sandbox.tar(("p/key", b"1"), ("p/copy", b"")))
    with tarfile.open(sandbox.data / "b.tar", "w") as archive:
        member = tarfile.TarInfo("p/key")
        member.size, member.mode = 1, 0o755
        archive.addfile(member, io.BytesIO(b"1"))
        linked = tarfile.TarInfo("p/same")
        linked.type, linked.linkname = tarfile.LNKTYPE, "p/key"
        archive.addfile(linked)
    sandbox.unpack("b.tar")
    assert sandbox.found() == {"key": "1*", "copy": "", "same": "1*"}


def test_devices_and_pipes_are_left_out_and_named(sandbox: Sandbox) -> None:
    kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    remarks = sandbox.unpack(sandbox.tar(("a", b"1"), *((f"d{kind[0]}", kind[0]) for kind in kinds)))
    assert sandbox.found() == {"a": "1"}
    assert "3 devices" in remarks[1]


@pytest.mark.parametrize("trap", ["link", "dangling", "pipe", "hard link", "folder link"])
def test_traps_of_an_earlier_turn_catch_nothing(sandbox: Sandbox, trap: str) -> None:
    """In a workspace that goes on, the agent may have laid something where the user's next file goes."""
    place = sandbox.workspace / "file"
    match trap:
        case "link":
            place.symlink_to(sandbox.secret / "key")
        case "dangling":
            place.symlink_to(sandbox.secret / "new")
        case "pipe":
            os.mkfifo(place)
        case "hard link":
            place.hardlink_to(sandbox.secret / "key")
        case "folder link":
            (sandbox.workspace / "folder").symlink_to(sandbox.secret)
    (sandbox.data / "file").write_text("mine")
    sandbox.unpack("file", sandbox.tar(("file", b"mine too"), ("x", b"1")))
    assert sandbox.found() | {"folder": ""} == {"file": "mine too", "x": "1", "folder": ""}
    if trap == "folder link":
        assert "through the link" in sandbox.refuses(sandbox.tar(("folder/key", b"stolen"), ("x", b"1")))
        assert "through the link" in sandbox.refuses(sandbox.tar(("folder/key", b""), ("folder/key", HARD), ("x", b"1")))


@pytest.mark.parametrize("system", [0, 3], ids=["windows", "unix"])
def test_backslashes_are_folders_only_in_archives_of_windows(sandbox: Sandbox, system: int) -> None:
    sandbox.unpack(sandbox.zip(("p\\a", b"1"), ("p\\q\\", b""), ("p\\b", b"2"), system=system))
    assert sandbox.found() == ({"a": "1", "b": "2", "q": "/"} if system == 0 else {"p\\a": "1", "p\\b": "2", "p\\q\\": ""})


def test_backslashes_do_not_lead_out(sandbox: Sandbox) -> None:
    assert "leaves the workspace" in sandbox.refuses(sandbox.zip(("..\\..\\out", b"1"), system=0))


def test_a_zip_keeps_links_and_exec_bits(sandbox: Sandbox) -> None:
    sandbox.zip(("p/run", b"1"), mode=stat.S_IFREG | 0o755)
    with zipfile.ZipFile(sandbox.data / "a.zip", "a") as archive:
        for name, mode, content in (("p/link", stat.S_IFLNK | 0o777, "run"), ("p/plain", 0, "2"), ("p/pipe", stat.S_IFIFO, "")):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    remarks = sandbox.unpack("a.zip")
    assert sandbox.found() == {"run": "1*", "link": "-> run", "plain": "2"}
    assert len(remarks) == 2


@pytest.mark.parametrize("name", ["../out", "/etc/../../out", "a\0b", "n" * 300], ids=["parent", "absolute", "nul", "long"])
def test_a_hostile_zip_is_refused(sandbox: Sandbox, name: str) -> None:
    sandbox.zip((name.replace("\0", "?"), b"1"))
    path = sandbox.data / "a.zip"
    path.write_bytes(path.read_bytes().replace(b"a?b", b"a\0b"))
    assert sandbox.refuses("a.zip")


def test_an_encrypted_zip_is_named_as_such(sandbox: Sandbox) -> None:
    path = sandbox.data / sandbox.zip(("a", b"1" * 50))
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "encrypted" in sandbox.refuses("a.zip")


@pytest.mark.parametrize("maker", ["tar", "zip"])
def test_bombs_are_refused_before_they_are_unpacked(sandbox: Sandbox, maker: str) -> None:
    make: Callable[..., str] = getattr(sandbox, maker)
    assert "more than 1048576 bytes" in sandbox.refuses(make(("a", bytes(1 << 20)), ("b", b"1")))
    assert "more than 1000 files" in sandbox.refuses(make(*((f"f{number}", b"") for number in range(1001))))
    assert sandbox.found() == {}


def test_many_folders_are_a_bomb_too(sandbox: Sandbox) -> None:
    assert "files" in sandbox.refuses(sandbox.tar(*((f"d{number}", tarfile.DIRTYPE[0]) for number in range(1001))))


def test_a_budget_spans_all_inputs(sandbox: Sandbox) -> None:
    (sandbox.data / "one").write_bytes(bytes(600_000))
    (sandbox.data / "two").write_bytes(bytes(600_000))
    assert "more than" in sandbox.refuses("one", "two")


def test_a_zip_that_lies_about_its_size_is_refused(sandbox: Sandbox) -> None:
    path = sandbox.data / sandbox.zip(("a", bytes(500_000)))
    content = path.read_bytes().replace(struct.pack("<I", 500_000), struct.pack("<I", 10))
    path.write_bytes(content)
    assert "damaged" in sandbox.refuses("a.zip")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
def test_a_compressed_tar_is_refused_unread(sandbox: Sandbox, compress: Callable[[bytes], bytes]) -> None:
    path = sandbox.data / sandbox.tar(("a", b"1"))
    path.write_bytes(compress(path.read_bytes()))
    assert "compressed as a whole" in sandbox.refuses("a.tar")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"PK\x05\x06", bytes(100), b"\x7fELF" + bytes(600)])
@pytest.mark.parametrize("name", ["a.tar", "a.zip"])
def test_what_is_no_archive_is_refused(sandbox: Sandbox, name: str, content: bytes) -> None:
    (sandbox.data / name).write_bytes(content)
    assert repr(name) in sandbox.refuses(name)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("maker", ["tar", "zip"])
def test_a_cut_archive_is_refused(sandbox: Sandbox, maker: str, share: float) -> None:
    """Also when the cut falls between two members, where the library would not notice."""
    make: Callable[..., str] = getattr(sandbox, maker)
    path = sandbox.data / make(
        *((f"f{number}", b"x" * 700) for number in range(9)), **({"format": tarfile.USTAR_FORMAT} if maker == "tar" else {})
    )
    content = path.read_bytes()
    if maker == "tar":
        content = content[: 9 * 1536]
        cut = int(len(content) * share) // 1536 * 1536 if share != 0.3 else int(len(content) * share)
        cut = max(cut, 1536)
    else:
        cut = int(len(content) * share)
    path.write_bytes(content[:cut])
    assert "damaged" in sandbox.refuses(path.name)


@pytest.mark.parametrize("maker", ["tar", "zip"])
def test_no_damage_raises_anything_but_a_refusal(sandbox: Sandbox, maker: str) -> None:
    """A flipped byte anywhere: refused, or unpacked inside the workspace."""
    make: Callable[..., str] = getattr(sandbox, maker)
    path = sandbox.data / make(("p/a", b"some content" * 30), ("p/b/c", b"more"), ("p/d", b""))
    whole, chance = path.read_bytes(), random.Random(5)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 1, 8))):
            damaged[chance.randrange(min(len(damaged), 5000))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            sandbox.unpack(path.name)
        except InputError:
            pass
    assert sandbox._outside() == [*sandbox._before]


def test_several_archives_get_a_folder_each(sandbox: Sandbox) -> None:
    sandbox.tar(("p/a", b"1"), name="one.tar")
    sandbox.zip(("a", b"2"), name="one.zip")
    (sandbox.data / "notes.md").write_text("3")
    assert len(sandbox.unpack("one.tar", "one.zip", "notes.md")) == 3
    assert sandbox.found() == {"one/a": "1", "one-2/a": "2", "notes.md": "3"}


def test_a_file_takes_the_place_of_one_from_an_archive(sandbox: Sandbox) -> None:
    (sandbox.data / "a").write_text("newer")
    assert "in place of" in sandbox.unpack(sandbox.tar(("a", b"older"), ("b", b"1")), "a")[1]
    assert sandbox.found()["a"] == "newer"


@pytest.mark.parametrize("name", ["../secret/key", "/etc/passwd", "..", "", "a\0b", "missing", "folder", "link", ".git"])
def test_an_input_is_a_file_of_the_store_and_nothing_else(sandbox: Sandbox, name: str) -> None:
    (sandbox.data / "folder").mkdir()
    (sandbox.data / "link").symlink_to(sandbox.secret / "key")
    (sandbox.data / ".git").write_text("gitdir: /etc")
    sandbox.refuses(name)
    assert sandbox.found() == {}


def test_a_full_disk_is_a_refusal(sandbox: Sandbox) -> None:
    (sandbox.workspace / "a").mkdir()
    (sandbox.workspace / "a" / "b").write_text("")
    (sandbox.data / "a").write_text("1")
    assert "'a'" in sandbox.refuses("a")
