"""What is sealed comes back equal: 200 random trees, in chains of one to four turns."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from runner_image.seals import KnownSeal, SealLimits, hash_tree, read_seals, restore, write_seal
from tests.runner_image.seals import trees
from workflow_schemas.seal import SealIndex


@pytest.mark.timeout(400)  # some 10 s alone; all of 200 trees also on a machine that is busy
@settings(max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(turns=trees.turns)
def test_every_turn_of_a_random_chain_comes_back(turns: list[list[trees.Edit]]) -> None:
    """Equal tree hashes, and equal names, kinds, modes, links, bytes and times by a walk that shares no code with the seals."""
    with tempfile.TemporaryDirectory(prefix="cc-") as name:
        folder = Path(name)
        root, out = folder / "workspace", folder / "out"
        root.mkdir()
        out.mkdir()
        limits = SealLimits(max_part_bytes=48_000, max_chain=3)
        parent: KnownSeal | None = None
        parts: list[Path] = []
        for number, edits in enumerate(turns, 1):
            for edit in edits:
                trees.apply(os.fsencode(root), edit)
            written = write_seal(root, out, stem=f"turn-{number:03}-seal", turn_number=number, parent=parent, limits=limits)
            parent, parts = written.known, [*written.parts, *parts]
            back = folder / f"back-{number}"
            back.mkdir()
            restored = restore(read_seals(parts, turn_number=number), back)
            assert not written.left_out
            assert restored.tree_sha256 == written.index.tree_sha256 == hash_tree(root) == hash_tree(back)
            assert trees.facts(back) == trees.facts(root)
            assert all(part.stat().st_size < limits.max_part_bytes for part in parts)
            assert SealIndex.decoded(written.index.encoded()) == written.index


@pytest.mark.parametrize("size", [1, 1024 * 1024, 1024 * 1024 + 1, 4 * 1024 * 1024, 13_000_001], ids=str)
def test_files_of_every_size_come_back(tmp_path: Path, size: int) -> None:
    """Small ones share a pack, large ones span several and even several parts, and equal ones are stored once."""
    root, back = tmp_path / "root", tmp_path / "back"
    root.mkdir()
    back.mkdir()
    content = os.urandom(size)
    for name in ("first", "second"):
        (root / name).write_bytes(content)
    (root / "third").write_bytes(b"x" + content[1:] + b"y")
    written = write_seal(root, tmp_path, stem="turn-001-seal", turn_number=1, limits=SealLimits(max_part_bytes=6_000_000))
    restore(read_seals(reversed(written.parts)), back)
    assert written.new_bytes == 2 * size + 1
    assert trees.facts(back) == trees.facts(root)
