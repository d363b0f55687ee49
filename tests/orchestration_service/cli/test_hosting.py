"""A program of ours asks the kernel to go first only where there is something to ask."""

import gc
from pathlib import Path

from orchestration_service.cli.hosting import ahead, quick_to_answer


def test_a_group_goes_ahead_and_back(tmp_path: Path) -> None:
    group = tmp_path / "autogroup"
    group.write_text("/autogroup-92 nice 3\n")
    with ahead(group):
        assert group.read_text() == "-10"
    assert group.read_text() == "3"


def test_a_process_outside_every_group_is_left_alone(tmp_path: Path) -> None:
    """Such a process reads an empty file, and a written number would be refused."""
    group = tmp_path / "autogroup"
    group.touch()
    with ahead(group):
        assert group.read_text() == ""
    assert group.read_text() == ""


def test_a_kernel_without_groups_is_left_alone(tmp_path: Path) -> None:
    with ahead(tmp_path / "autogroup"):
        pass
    assert not (tmp_path / "autogroup").exists()


def test_a_refusal_changes_nothing() -> None:
    """This file can be read, and written by nobody."""
    refusing = Path("/proc/version")
    before = refusing.read_text()
    with ahead(refusing):
        assert refusing.read_text() == before


def test_what_is_loaded_is_exempt_from_collections_until_the_end() -> None:
    with quick_to_answer():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
