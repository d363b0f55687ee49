"""docs/claude_cli.md has a reason for each variable the CLI is given."""

from pathlib import Path

import pytest

from runner_image.agent import agent_environment
from runner_image.places import Places
from runner_image.walls.bubblewrap import BubblewrapWall
from workflow_schemas.plan import Limits, TurnPlan

DOCUMENT = Path(__file__).parents[2] / "docs" / "claude_cli.md"


@pytest.fixture
def plan() -> TurnPlan:
    limits = Limits(soft_seconds=1, hard_seconds=2, max_turns=3, command_timeout_seconds=4, max_output_bytes=2048, max_unpacked_bytes=2048)
    return TurnPlan(
        run_id="12345678",
        turn_number=1,
        prompt="p",
        system_prompt="s",
        model="m",
        small_model="n",
        tools=(),
        limits=limits,
        output_stem="t-1",
    )


def test_each_variable_behind_the_wall_has_its_reason(plan: TurnPlan, tmp_path: Path) -> None:
    wrapper = BubblewrapWall(binary=Path("/usr/bin/bwrap"), places=Places(state=tmp_path)).install(agent_environment(plan))
    words = wrapper.read_text(encoding="utf-8").split()
    given = {name for option, name in zip(words, words[1:], strict=False) if option == "--setenv"}
    text = DOCUMENT.read_text(encoding="utf-8")
    assert "CLAUDE_CODE_SHELL_PREFIX" in given
    assert sorted(name for name in given if f"`{name}`" not in text) == []
