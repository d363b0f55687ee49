"""The demo repository is the same everywhere and has exactly one failing test."""

import subprocess
from pathlib import Path

import pytest

from orchestration_service.scripted.demo_repository import TEST_COMMAND, create_demo_repository
from orchestration_service.scripted.errors import FolderNotEmpty, GitFailed


def git(folder: Path, *arguments: str) -> str:
    """Give what git says."""
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True, text=True).stdout


def test_the_same_repository_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's git configuration nor the clock shows in the commits."""
    first = create_demo_repository(tmp_path / "one")
    (tmp_path / ".gitconfig").write_text("[user]\nname = Other\n[commit]\ngpgsign = true\n[core]\nautocrlf = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    second = create_demo_repository(tmp_path / "two")
    assert first.head == second.head == "75e88e0133914913025b111317ad6318ba7bd309"
    assert git(second.path, "log", "--format=%an %aI %s").splitlines() == [
        "Robin Winter 2026-01-13T16:05:00+00:00 Add the cart and tests",
        "Robin Winter 2026-01-12T09:30:00+00:00 Add prices with a discount for large quantities",
    ]
    assert git(second.path, "status", "--short") == ""


def test_exactly_one_test_fails(tmp_path: Path) -> None:
    repository = create_demo_repository(tmp_path / "repository")
    done = subprocess.run(TEST_COMMAND, cwd=repository.path, capture_output=True, check=False, text=True)
    assert done.returncode == 1
    assert f"FAIL: {repository.failing_test}" in done.stderr
    assert "FAILED (failures=1)" in done.stderr


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FolderNotEmpty, match="empty"):
        create_demo_repository(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_git_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitFailed, match="install"):
        create_demo_repository(tmp_path / "repository")
