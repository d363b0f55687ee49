"""A seal comes back from the platform: damaged, incomplete, of another conversation, or made by an enemy."""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from runner_image.errors import SealError
from runner_image.seals import SealLimits, WrittenSeal, read_seals, restore, write_seal
from workflow_schemas.seal import EMPTY_SHA256, SealEntry, SealIndex, SealPack, tree_sha256

CONTENT = b"hello"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def file_entry(path: str, **changed: Any) -> SealEntry:
    return SealEntry(path, "file", 0o644, 0, len(CONTENT), SHA256, 0, 0)._replace(**changed)


def folder_entry(path: str) -> SealEntry:
    return SealEntry(path, "directory", 0o755, 0, 0, "", 0, 0)


def link_entry(path: str, target: str) -> SealEntry:
    return SealEntry(path, "symlink", 0o777, 0, 0, target, 0, 0)


def forged(folder: Path, entries: tuple[SealEntry, ...], content: bytes = CONTENT, **pack: Any) -> Path:
    """Write a seal that only an enemy would write; the index says what it is told to say."""
    stored = zstd.compress(content)
    facts = {
        "sha256": hashlib.sha256(stored).hexdigest(),
        "codec": "zstd",
        "size_bytes": len(content),
        "stored_bytes": len(stored),
        "part": 1,
    }
    index = SealIndex.model_construct(
        schema_version="1",
        turn_number=1,
        stem="evil",
        chain=(),
        tree_sha256=tree_sha256(entries),
        entries=entries,
        packs=(SealPack.model_construct(**{**facts, **pack}),),
        extras=(),
        left_out=(),
    )
    path = folder / "evil.tar"
    written = {f"seal/packs/{facts['sha256']}": stored, "seal/index.json.zst": zstd.compress(index.encoded())}
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in written.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def back(tmp_path: Path) -> Path:
    back = tmp_path / "inside" / "back"
    back.mkdir(parents=True)
    return back


def test_the_forger_can_write_a_sound_seal(tmp_path: Path, back: Path) -> None:
    """Else the refusals below would prove nothing."""
    restore(read_seals([forged(tmp_path, (folder_entry("a"), file_entry("a/b")))]), back)
    assert (back / "a" / "b").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "entries",
    [
        (file_entry("../evil"),),
        (file_entry("/evil"),),
        (file_entry("a/../../evil"),),
        (folder_entry(".."), file_entry("../evil")),
        (folder_entry("a"), file_entry("a/..")),
        (folder_entry("a"), file_entry("a//b")),
        (file_entry("\\x2e\\x2e"),),
        (file_entry("a\\x2fb"),),
        (file_entry("a\0b"),),
        (file_entry("\\"),),
        (file_entry(""),),
        (file_entry("n" * 256),),
        (link_entry("a", "/etc"), file_entry("a/passwd")),
        (file_entry("a"), file_entry("a/b")),
        (file_entry("a"), file_entry("a")),
        (link_entry("a", "/etc"), folder_entry("a"), file_entry("a/b")),
        (file_entry("b"), file_entry("a")),
        (file_entry("missing/b"),),
        (file_entry("a", mode=0o4755),),
        (file_entry("a", size=-1),),
        (file_entry("a", size=2**60),),
        (file_entry("a", size=6),),
        (file_entry("a", start=1),),
        (file_entry("a", seal=1),),
        (file_entry("a", content="../" + SHA256[3:]),),
        (file_entry("a", size=0),),
        (file_entry("a", kind="device"),),
        (link_entry("a", ""),),
        (link_entry("a", "x\0"),),
        (folder_entry("a")._replace(content="x"),),
        tuple(folder_entry("/".join("d" * depth)) for depth in range(1, 600)),
    ],
    ids=lambda entries: ascii(f"{entries[0].kind} {entries[-1].path[:20]} {len(entries)}"),
)
def test_entries_that_would_leave_the_tree_or_contradict_themselves(tmp_path: Path, entries: tuple[SealEntry, ...]) -> None:
    with pytest.raises(SealError, match="cannot be used"):
        read_seals([forged(tmp_path, entries)])


@pytest.mark.parametrize(
    ("content", "pack"),
    [
        (b"HELLO", {}),
        (CONTENT, {"size_bytes": 7_000_000}),
        (bytes(8_000_000), {"size_bytes": 5}),
        (CONTENT, {"codec": "raw"}),
    ],
    ids=["other bytes", "too short", "bomb", "not raw"],
)
def test_a_content_that_is_not_what_the_index_states(tmp_path: Path, back: Path, content: bytes, pack: dict[str, Any]) -> None:
    """Nothing of the tree is left, so nobody can take it for whole."""
    part = forged(tmp_path, (file_entry("a"), link_entry("b", "a")), content, **pack)
    with pytest.raises(SealError):
        restore(read_seals([part]), back)
    assert not list(back.iterdir())
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "pack", [{"size_bytes": 2**40}, {"stored_bytes": 2**40}, {"size_bytes": 0}, {"part": 0}, {"sha256": "../x"}], ids=str
)
def test_packs_out_of_bounds(tmp_path: Path, pack: dict[str, Any]) -> None:
    with pytest.raises(SealError):
        read_seals([forged(tmp_path, (file_entry("a"),), **pack)])


def test_one_content_under_many_names_is_counted_each_time(tmp_path: Path, back: Path) -> None:
    part = forged(tmp_path, tuple(file_entry(f"{number:06}") for number in range(1000)))
    with pytest.raises(SealError, match="unpacks to more"):
        read_seals([part], limits=SealLimits(max_tree_bytes=4999))
    with pytest.raises(SealError, match="above the limit"):
        restore(read_seals([part]), back, limits=SealLimits(max_entries=999))


def test_an_index_that_is_a_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar"
    data = zstd.compress(bytes(300_000_000))
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo("seal/index.json.zst")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    with pytest.raises(SealError, match="more than"):
        read_seals([path])


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE], ids=repr)
def test_members_that_no_seal_holds(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "odd.tar"
    member = tarfile.TarInfo("seal/index.json.zst")
    member.type, member.linkname = kind, "/etc/passwd"
    path.write_bytes(member.tobuf(tarfile.USTAR_FORMAT) + bytes(1024))
    with pytest.raises(SealError, match="no seal holds"):
        read_seals([path])


@pytest.fixture
def chain(tmp_path: Path) -> list[WrittenSeal]:
    """Three turns, of which the first has several parts."""
    root, seals = tmp_path / "root", list[WrittenSeal]()
    root.mkdir()
    (root / "large").write_bytes(os.urandom(300_000))
    for number in (1, 2, 3):
        (root / f"turn-{number}").write_text(str(number))
        parent = seals[-1].known if seals else None
        limits = SealLimits(max_part_bytes=120_000)
        seals.append(write_seal(root, tmp_path, stem=f"turn-{number:03}-seal", turn_number=number, parent=parent, limits=limits))
    return seals


def test_each_missing_part_is_told(chain: list[WrittenSeal]) -> None:
    parts = [part for seal in chain for part in seal.parts]
    assert len(parts) > 4
    for missing in parts:
        with pytest.raises(SealError, match="missing|not among|candidates"):
            read_seals((part for part in parts if part != missing), index_sha256=chain[-1].known.index_sha256)


def test_a_seal_of_another_conversation_fits_nowhere(chain: list[WrittenSeal], tmp_path: Path) -> None:
    """Same names, same numbers, other content."""
    (tmp_path / "root" / "turn-1").write_text("other")
    (tmp_path / "other").mkdir()
    other = write_seal(tmp_path / "root", tmp_path / "other", stem="turn-001-seal", turn_number=1)
    with pytest.raises(SealError, match="turn 1 is missing"):
        read_seals([*other.parts, *chain[1].parts, *chain[2].parts], turn_number=3)


def test_two_candidates_are_not_guessed_between(chain: list[WrittenSeal], tmp_path: Path) -> None:
    fork = write_seal(tmp_path / "root", tmp_path, stem="fork", turn_number=2, parent=chain[0].known)
    parts = [part for seal in (*chain, fork) for part in seal.parts]
    with pytest.raises(SealError, match="2 candidates"):
        read_seals(parts)
    assert read_seals(parts, index_sha256=fork.known.index_sha256).index.stem == "fork"


def test_an_earlier_turn_can_be_read_from_the_same_parts(chain: list[WrittenSeal], back: Path) -> None:
    restore(read_seals([part for seal in chain for part in seal.parts], turn_number=2), back)
    assert sorted(path.name for path in back.iterdir()) == ["large", "turn-1", "turn-2"]


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[: len(data) // 2], lambda data: data[:-1024], lambda _: b"", lambda data: b"\0" * 512 + data],
    ids=["half", "no end mark", "empty", "zeros first"],
)
def test_a_part_that_was_cut(chain: list[WrittenSeal], damage: Callable[[bytes], bytes]) -> None:
    part = chain[0].parts[0]
    part.write_bytes(damage(part.read_bytes()))
    with pytest.raises(SealError):
        read_seals([part for seal in chain for part in seal.parts])


def test_no_flipped_byte_passes(chain: list[WrittenSeal], tmp_path: Path) -> None:
    """Every byte counts, save the fields of a tar header that nobody reads and the padding."""
    part, back = chain[-1].parts[0], tmp_path / "back"
    sound, parts = part.read_bytes(), [part for seal in chain for part in seal.parts]
    expected = chain[-1].index.tree_sha256
    for position in range(0, len(sound), 97):
        part.write_bytes(sound[:position] + bytes([sound[position] ^ 0x20]) + sound[position + 1 :])
        back.mkdir()
        try:
            assert restore(read_seals(parts), back).tree_sha256 == expected
        except SealError:
            assert not list(back.iterdir())
        shutil.rmtree(back)


def test_a_folder_that_is_not_empty_is_left_alone(chain: list[WrittenSeal], back: Path) -> None:
    (back / "mine").write_text("mine")
    with pytest.raises(SealError, match="not empty"):
        restore(read_seals([part for seal in chain for part in seal.parts]), back)
    assert [path.name for path in back.iterdir()] == ["mine"]


def test_what_a_killed_restore_left_is_taken_away(chain: list[WrittenSeal], back: Path) -> None:
    (back / ".seal-being-restored-0" / "half").mkdir(parents=True)
    restore(read_seals([part for seal in chain for part in seal.parts]), back)
    assert sorted(path.name for path in back.iterdir()) == ["large", "turn-1", "turn-2", "turn-3"]


def test_an_empty_file_lies_nowhere(tmp_path: Path, back: Path) -> None:
    restore(read_seals([forged(tmp_path, (file_entry("a", size=0, content=EMPTY_SHA256),))]), back)
    assert (back / "a").read_bytes() == b""
