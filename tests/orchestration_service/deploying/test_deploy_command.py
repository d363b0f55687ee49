"""The command an operator types: what it prints, what it never prints, and what it says when it cannot."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.cli.deploy import deploy
from orchestration_service.cli.main import main
from orchestration_service.deploying.errors import (
    DeploymentError,
    Forbidden,
    Halted,
    NotSignedIn,
    ProfileRefused,
    Unreachable,
    WrongInstance,
)
from orchestration_service.deploying.installation import Choices
from tests.orchestration_service.deploying.standins.stores import Operator
from tests.orchestration_service.deploying.standins.world import ANTHROPIC_KEY, INSTANCE, VARIABLES, World

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulator

Command = Callable[..., Awaitable[int]]
IN_CLEAR = "sk-ant-left-in-the-clear"


@pytest.fixture
def command(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, with the profile of the world in a file."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "profile.json"
    content = world.profile.model_dump(mode="json", exclude_unset=True)
    content["platform"]["storage_url"] = str(world.profile.platform.storage_url).removesuffix("/devstoreaccount1")
    path.write_text(json.dumps(content))

    async def run(action: Any, *, as_json: bool = False, removal: bool = False, **chosen: bool) -> int:
        return await deploy(action, path, Choices(**chosen), places=lambda _: world.places(), as_json=as_json, removal=removal)

    return run


async def test_an_operators_day(world: World, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """Plan, apply, verify, a slip of somebody's, verify, apply, remove: with the exit codes scripts go by, and no secret on the screen."""
    world.stores.set("FoundationaLLM:APIEndpoints:Anthropic:Essentials:APIKey", IN_CLEAR)
    assert [await command("plan"), await command("verify"), await command("plan", as_json=True)] == [2, 2, 2]
    assert await command("apply", overwrite=True) == 0
    assert [await command("plan"), await command("verify")] == [0, 0]
    made = world.stores.secrets["foundationallm-apiendpoints-claudecode-apikey"]
    await world.edit("FoundationaLLM.Agent/_resource-references.json", lambda content: content["ResourceReferences"].pop(2))
    assert await command("verify") == 2
    assert await command("apply") == 0
    assert [await command("plan", removal=True), await command("remove"), await command("plan", removal=True)] == [2, 0, 0]
    printed = "".join(capsys.readouterr())
    assert not [secret for secret in (ANTHROPIC_KEY, IN_CLEAR, made) if secret in printed]
    for words in (
        "create    secret 'foundationallm-apiendpoints-claudecode-apikey'  (made here, at random)",
        "create    agent 'claude-code'",
        "change    workflow 'ClaudeCodeAgentWorkflow'  (its line in the list of resources is missing or wrong)",
        "OrchestrationAPI: it lists external orchestrators once, when it starts",
        "Everything is as planned.",
        "remove    agent 'claude-code'",
    ):
        assert words in printed


async def test_a_service_that_is_not_up_stops_the_installation_before_the_platform_hears_of_it(world: World, command: Command) -> None:
    world.service_status = 503
    with pytest.raises(Halted, match=r"(?s)/status does not answer as it should \(status 503\).*Not reached: endpoint 'ClaudeCode'"):
        await command("apply")
    assert not [one for one in world.api.requests if one.startswith("POST FoundationaLLM.Configuration")]
    assert await command("apply", skip_service=True) == 0


async def test_what_only_the_operator_has_is_asked_for_before_anything_is_written(
    world: World, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEPLOY_ANTHROPIC_APIKEY")
    with pytest.raises(ProfileRefused, match="Set DEPLOY_ANTHROPIC_APIKEY to its value"):
        await command("apply")
    assert world.faults.writes == []


async def test_a_cache_that_may_not_be_reset_is_told_with_the_role(world: World, command: Command) -> None:
    world.api.may_reset = False
    with pytest.raises(Halted, match="'Resource Providers Administrator', or restart"):
        await command("apply")
    world.api.may_reset = True
    assert await command("apply") == 0


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("busy", Unreachable, "does not work at the moment .status 503."),
        ("stranger", NotSignedIn, "does not admit the token. .* az login --scope"),
        ("nobody", NotSignedIn, "No token for App Configuration at .* nobody is signed in. Sign in with 'az login'"),
        ("forbidden", Forbidden, "Give it the platform's roles 'Contributor'"),
        ("reader", Forbidden, "'App Configuration Data Owner'"),
        ("elsewhere", WrongInstance, f"belongs to the instance 'another', the profile to '{INSTANCE}'"),
        ("nowhere", WrongInstance, "belongs to no instance"),
        ("gone", Unreachable, "does not answer"),
        ("no container", DeploymentError, "refuses the request: The specified container does not exist"),
    ],
)
async def test_it_refuses_with_the_fix(world: World, fault: str, error: type[Exception], words: str) -> None:
    who = Operator()
    platform = world.profile.platform
    if fault == "busy":
        world.api.broken = 100
    elif fault == "stranger":
        who = Operator(management="somebody else's")
    elif fault == "nobody":
        who = Operator(management="")
    elif fault == "forbidden":
        world.api.forbidden = "FoundationaLLM.Prompt"
    elif fault == "reader":
        who = Operator(other="somebody else's")
    elif fault == "elsewhere":
        world.stores.set("FoundationaLLM:Instance:Id", "another")
    elif fault == "nowhere":
        del world.stores.settings["FoundationaLLM:Instance:Id"]
    elif fault == "gone":
        platform = platform.model_copy(update={"management_url": "http://127.0.0.1:9"})
    else:
        platform = platform.model_copy(update={"storage_container": "not-there"})
    world.profile = world.profile.model_copy(update={"platform": platform})
    with pytest.raises(error, match=words):
        await world.plan(who=who)


async def test_a_busy_platform_is_asked_again(world: World) -> None:
    world.api.broken = 2
    assert [finding for finding in await world.plan() if finding.acts]


def test_a_profile_without_addresses_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(f'instance_id = "{INSTANCE}"\n[service]\nurl = "https://cc.example.com"\n[models]\nsonnet = "claude-sonnet-4-5"\n')
    assert main(["deploy", "plan", "--profile", str(path)]) == 1
    assert "set management_url, app_configuration_url, key_vault_url, storage_url below [platform]" in capsys.readouterr().err
    assert main(["deploy", "plan", "--profile", str(tmp_path / "none.toml")]) == 1
    assert "cannot be read" in capsys.readouterr().err
