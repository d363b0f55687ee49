"""Pages that are taken over from the seal before say exactly what writing the whole index would say."""

import json
import random
from pathlib import Path

import pytest

from runner_image.seals import KnownSeal, keep, recall, write_seal
from runner_image.seals.page import cut, encoded, measures_of, paged, tree_sha256_of
from workflow_schemas.seal import EMPTY_SHA256, SealEntry, SealIndex, tree_sha256

_NAMES = ("plain", "{}", '],["', "\n", "\u00e9", "\\\\", '"entries":[]', "\x7f\x01")


def _entry(number: int, mtime_ns: int = 0) -> SealEntry:
    return SealEntry(f"{number:04}{_NAMES[number % len(_NAMES)]}", "file", 0o644, mtime_ns, 0, EMPTY_SHA256, 0, 0)


def _index(entries: tuple[SealEntry, ...]) -> SealIndex:
    return SealIndex(turn_number=1, stem="turn-001-seal", tree_sha256=tree_sha256(entries), entries=entries)


def test_pages_after_any_change_are_the_index() -> None:
    """Entries go, come and change, alone and in long rows, at either end too; until nothing is left."""
    dice = random.Random(7)
    numbers, pages = list(range(100, 300)), paged((), ())
    for turn in range(60):
        at, length = dice.randrange(-40, 400), dice.choice((1, 3, 40, 400))
        chosen = set(range(at, at + length))
        numbers = sorted({*numbers, *chosen} if turn % 2 and turn < 50 else {*numbers} - chosen)
        entries = tuple(_entry(number, turn if number % 50 == turn else 0) for number in numbers if number >= 0)
        pages = paged(entries, pages)
        index = _index(entries)
        assert encoded(index, pages) == index.encoded()
        assert tree_sha256_of(pages) == index.tree_sha256
        hashed = b"".join(page.hashed for page in pages)
        assert cut(index, index.encoded(), hashed, measures_of(pages)) == tuple(pages)


def test_unchanged_pages_are_taken_over() -> None:
    """Only the page with the changed entry is written anew."""
    entries = tuple(map(_entry, range(100)))
    before = paged(entries, ())
    after = paged((*entries[:50], _entry(50, 1), *entries[51:]), before)
    assert [page is old for page, old in zip(after, before, strict=True)].count(False) == 1


@pytest.fixture
def known(tmp_path: Path) -> KnownSeal:
    root = tmp_path / "root"
    root.mkdir()
    for number in range(40):
        (root / f"file-{number}").write_text("content")
    return write_seal(root, tmp_path, stem="turn-001-seal", turn_number=1).known


def test_pages_are_kept_for_another_process(known: KnownSeal, tmp_path: Path) -> None:
    """What was recalled has the same texts, not only the same entries."""
    keep(known, tmp_path / "known")
    again = recall(tmp_path / "known")
    assert again == known
    assert again is not None
    assert again.pages == known.pages


def test_a_note_with_any_byte_changed_is_none(known: KnownSeal, tmp_path: Path) -> None:
    """A wrong text would make a seal that nobody can read."""
    keep(known, tmp_path / "known")
    data = (tmp_path / "known").read_bytes()
    for position in range(0, len(data), 53):
        (tmp_path / "known").write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert recall(tmp_path / "known") is None


def test_a_note_in_the_form_without_pages_is_none(known: KnownSeal, tmp_path: Path) -> None:
    """An earlier version kept two lines; the seal is read from its parts then."""
    head = {"index_sha256": known.index_sha256, "device": known.device, "stamps": {name: stamp[:4] for name, stamp in known.stamps.items()}}
    (tmp_path / "known").write_bytes(json.dumps(head).encode() + b"\n" + known.index.encoded())
    assert recall(tmp_path / "known") is None


@pytest.mark.parametrize("measures", [[], [(40, 10, 10)], [(39, 1, 1), (1, 1, 1)]], ids=["none", "short", "shifted"])
def test_measures_of_another_index_are_refused(known: KnownSeal, measures: list[tuple[int, int, int]]) -> None:
    """The pages must end where the index's entries do."""
    hashed = b"".join(page.hashed for page in known.pages)
    with pytest.raises(ValueError, match="not those of the index"):
        cut(known.index, known.index.encoded(), hashed, measures)
