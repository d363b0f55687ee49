"""docs/installing.md shows what is so: the profile can be read, the commands are understood, the output is what is printed."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from deployment_templates.profile import read_profile
from orchestration_service.cli.deploy import deploy
from orchestration_service.cli.main import _parser
from orchestration_service.deploying import errors
from orchestration_service.deploying.installation import Choices, variable_of
from tests.orchestration_service.deploying.standins.world import VARIABLES, World

TEXT = (Path(__file__).parents[3] / "docs" / "installing.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_profile_is_enough_to_install_from() -> None:
    profile = read_profile(tomllib.loads(blocks("toml")[0]))
    places = (
        profile.platform.management_url,
        profile.platform.app_configuration_url,
        profile.platform.key_vault_url,
        profile.platform.storage_url,
    )
    assert all(places)


def test_the_commands_the_variables_and_the_errors_exist() -> None:
    commands = re.findall(r"^\./dev (deploy .*)$", "".join(blocks("sh parse")), re.MULTILINE)
    assert {_parser().parse_args(shlex.split(line)).action for line in commands} == {"plan", "apply", "verify", "remove"}
    assert variable_of("FoundationaLLM:APIEndpoints:Anthropic:Essentials:APIKey") in TEXT
    named = re.findall(r"^\| `([A-Z][A-Za-z]+)` \|", TEXT, re.MULTILINE)
    assert [name for name in named if not issubclass(getattr(errors, name), errors.DeploymentError)] == []


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_the_output_is_what_is_printed(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    profile = tmp_path / "west.toml"
    profile.write_text(blocks("toml")[0])
    await deploy("plan", profile, Choices(), places=lambda _: world.places())
    await world.apply()
    await world.save_agent_in_portal(display_name="Our coder")
    await world.apply()
    await deploy("plan", profile, Choices(), places=lambda _: world.places())
    printed = capsys.readouterr().out
    assert [line for block in blocks("text") for line in block.splitlines() if line not in printed] == []
