"""A profile is checked whole, says what to change, and never holds a secret."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deployment_templates.errors import ProfileError
from deployment_templates.example import example
from deployment_templates.profile import load_profile, read_profile
from orchestration_service.cli.main import main

INSTANCE = "8ac6074c-bdde-43cb-a140-ec0002d96d2b"


def given(**changes: Any) -> dict[str, Any]:
    return {"instance_id": INSTANCE, "service": {"url": "http://claude-code-api"}, "models": {"sonnet": "claude-sonnet"}} | changes


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"instance_id": "main"}, "instance_id", "Set it as `instance_id = …` at the top"),
        ({"service": {}}, "service.url", "is missing. It is: Address at which the Orchestration API reaches the service"),
        ({"service": {"url": "https://host/claude"}}, "service.url", "must be scheme and host only"),
        ({"models": {"provider": "azure", "sonnet": "s"}}, "models.provider", "Set it as `provider = …` below [models]"),
        ({"models": {"provider": "foundry", "sonnet": "s"}}, "models", "url is missing: https://RESOURCE.services.ai.azure.com/anthropic"),
        ({"models": {"haiku": "h"}}, "models", "the agent's model is 'sonnet', but it has no name"),
        ({"models": {"sonnet": "s", "fallbacks": ["opus"]}}, "models", "must be models with a name, others than main and each once: opus"),
        ({"models": {"sonnet": "s", "authentication": "identity"}}, "models", "is not for anthropic"),
        ({"names": {"agent": "claudecode", "tool": "ClaudeCode"}}, "names", "share one namespace"),
        ({"names": {"tool": "Sandbox"}}, "names.tool", "must begin with ClaudeCode"),
        ({"names": {"agent": "my agent"}}, "names.agent", "Name of the agent"),
        ({"sandbox": {"cpu": 0.25}}, "sandbox.cpu", "do not carry a turn"),
        ({"sandbox": {"memory_gib": 0.5}}, "sandbox.memory_gib", "do not carry a turn"),
        ({"uploads": {"mode": "knowledge-tool"}}, "uploads", "needs the names of resources that exist: data_pipeline, knowledge_unit"),
        ({"workflow": {"max_turnz": 3}}, "workflow", "'max_turnz' is not known"),
        ({"workflow": {"max_turns": "many"}}, "workflow", "'max_turns' was not used"),
        ({"roles": {"users": ["everybody"]}}, "roles.users.0", "Object ids of groups that may see and use the agent"),
        ({"servise": {}}, "servise", "is not known; check the spelling"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() and " " not in value else "",
)
def test_a_wrong_value_is_named_with_its_remedy(changes: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read_profile(given(**changes), source="west.toml")
    assert key in caught.value.keys
    assert said in str(caught.value)
    assert "'west.toml'" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"models": {"sonnet": "s", "api_key": "abc"}}, "models.api_key"),
        ({"platform": {"management_url": "https://user:sk-ant-api03-abc@host"}}, "platform.management_url"),
        ({"workflow": {"note": ["x", "AKIAABCDEFGHIJKLMNOP"]}}, "workflow.note[1]"),
        ({"client_secret": "abc"}, "client_secret"),
    ],
    ids=["by its name", "by its text", "in a list", "at the top"],
)
def test_a_secret_is_refused_and_not_repeated(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read_profile(given(**changes))
    assert caught.value.keys == (key,)
    assert "abc" not in str(caught.value)
    assert "AKIA" not in str(caught.value)


def test_toml_and_json_are_the_same(tmp_path: Path) -> None:
    values = given(roles={"users": [INSTANCE]}, names={"secret_prefix": "fllm-"}, workflow={"allowed_tools": ["Read", "Grep"]})
    (tmp_path / "west.json").write_text(json.dumps(values))
    (tmp_path / "west.toml").write_text(
        f'instance_id = "{INSTANCE}"\n[service]\nurl = "http://claude-code-api"\n[models]\nsonnet = "claude-sonnet"\n'
        f'[roles]\nusers = ["{INSTANCE}"]\n[names]\nsecret_prefix = "fllm-"\n[workflow]\nallowed_tools = ["Read", "Grep"]\n'
    )
    assert load_profile(tmp_path / "west.toml") == load_profile(tmp_path / "west.json")
    (tmp_path / "west.toml").write_text("instance_id = ")
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(tmp_path / "west.toml")


def test_the_example_names_every_key_and_is_a_profile(tmp_path: Path) -> None:
    """It is what is printed, and with every default written out it is the same profile."""
    example_file = Path(__file__).parents[2] / "deployment_templates" / "profile.example.toml"
    text = example()
    assert example_file.read_text(encoding="utf-8") == text
    profile = load_profile(example_file)
    written_out = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(written_out)
    assert load_profile(tmp_path / "all.toml").model_dump() == profile.model_dump()
    keys = {key for field in type(profile).model_fields.values() for key in getattr(field.annotation, "model_fields", {})}
    assert [key for key in keys if not re.search(rf"^(?:# )?{key} =", text, re.MULTILINE)] == []


def test_the_command_line_renders_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["templates", "profile"]) == 0
    assert capsys.readouterr().out == example()
    render = ["templates", "render", "--generation", "standard"]
    assert main([*render, "--out", str(tmp_path)]) == 0
    assert main([*render, "--out", str(tmp_path), "--check"]) == 0
    assert capsys.readouterr().out.endswith("as they should be\n")
    assert main(render) == 1
    assert "--out" in capsys.readouterr().err
