"""`config show`, run as an operator runs it: what is in force, where it comes from, and no secret."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "sk-ant-very-secret-value"


def show(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    hidden = ("ANTHROPIC_", "CLAUDE_CODE_", "FOUNDATIONALLM_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)} | variables
    line = [sys.executable, "-m", "orchestration_service.cli", "config", "show", *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_each_setting_is_shown_with_its_source_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"CLAUDE_CODE_PORT=8001\nANTHROPIC_API_KEY={SECRET}\n")
    shown = show(tmp_path, CLAUDE_CODE_HOST="0.0.0.0", CLAUDE_CODE_LEASE_SECONDS="")
    assert shown.returncode == 0, shown.stderr
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in shown.stdout.splitlines()}
    assert rows["CLAUDE_CODE_HOST"] == ["0.0.0.0", "the environment"]
    assert rows["CLAUDE_CODE_PORT"] == ["8001", "the file .env"]
    assert rows["CLAUDE_CODE_LEASE_SECONDS"] == ["30.0", "built in"]
    assert rows["CLAUDE_CODE_ANTHROPIC_API_KEY"] == ["********", "the file .env"]
    assert rows["CLAUDE_CODE_INSTANCE_ID"][1] == "made once, in .data/instance-id"
    key = (tmp_path / ".data" / "api-key").read_text()
    assert (tmp_path / ".data" / "api-key").stat().st_mode & 0o077 == 0
    assert SECRET not in shown.stdout
    assert key not in shown.stdout


def test_a_program_can_read_it(tmp_path: Path) -> None:
    found = json.loads(show(tmp_path, "--json", CLAUDE_CODE_API_KEY=SECRET).stdout)
    key = next(one for one in found["settings"] if one["variable"] == "CLAUDE_CODE_API_KEY")
    assert (key["value"], key["source"]) == ("********", "the environment")
    assert key["meaning"]
    assert found["without_effect"] == []


@pytest.mark.parametrize("name", ["CLAUDE_CODE_PORT", "CLAUDE_CODE_MINIMUM_WALL"])
def test_a_wrong_value_is_told_with_all_the_places_where_it_belongs(tmp_path: Path, name: str) -> None:
    shown = show(tmp_path, **{name: "eighty"})
    assert shown.returncode == 1
    assert name in shown.stderr
    assert "'.env'" in shown.stderr
    assert "FoundationaLLM:APIEndpoints:ClaudeCode:Configuration:" in shown.stderr
