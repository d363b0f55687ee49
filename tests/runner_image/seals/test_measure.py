"""The measurement runs, and what does not depend on the machine is within its budget."""

from pathlib import Path

from context_client.embedded.gate import SNIFFED_BYTES, Pass, judge_content
from context_client.embedded.settings import FilePolicy
from runner_image.seals import write_seal
from runner_image.seals.measure import make_tree, measure


def test_the_second_seal_has_a_tenth_of_the_bytes_of_the_first(tmp_path: Path) -> None:
    """One file in a hundred changed; the seconds are for `./dev bench`, where nothing else runs."""
    figures = measure(tmp_path, rounds=1, files=300, size_bytes=6_000_000)
    assert figures["files"] == 300
    assert float(str(figures["second_over_first_bytes"])) < 0.1


def test_every_part_passes_the_gate_of_the_platform(tmp_path: Path) -> None:
    """Parts are told to be tar archives by their first bytes, and stay byte-exact as such."""
    root = tmp_path / "root"
    root.mkdir()
    make_tree(root, files=40, size_bytes=4_000_000)
    written = write_seal(root, tmp_path, stem="turn-001-seal", turn_number=1)
    for part in written.parts:
        passed = judge_content(part.name, part.read_bytes()[:SNIFFED_BYTES], FilePolicy())
        assert isinstance(passed, Pass)
        assert passed.is_archive
