"""Every workflow property has an effect: on the plan, or, where there is none yet, on what the user is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.planning import Planned
from tests.orchestration_service.turns import asked, plan
from workflow_schemas.properties import WorkflowProperties

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Effect:
    """What a property changes."""

    value: Any
    """A value that is not the default."""
    seen: Callable[[Planned], object]
    """What of the plan it changes."""
    becomes: object
    """What that is then."""
    shown_in: str = ""
    """A test of whole turns that shows what follows from it, where the plan alone shows nothing a user would notice."""


def remarks(planned: Planned) -> str:
    return " ".join(planned.remarks)


def told(*words: str) -> Callable[[Planned], object]:
    """Whether the user is told so."""
    return lambda planned: all(word in remarks(planned) for word in words)


EFFECTS: Mapping[str, Effect] = {
    "schema_version": Effect("2", told("'schema_version'", "version '1'"), True),
    "sandbox_profile": Effect("internet-enabled", told("'sandbox_profile'", "without network"), True),
    "minimum_wall": Effect("namespaces", lambda planned: planned.plan.minimum_wall, "namespaces", "tests/security/test_agent_wall.py"),
    "sandbox_timeout_seconds": Effect(600, lambda planned: planned.plan.limits.hard_seconds, 600.0),
    "sandbox_cpu": Effect(0.5, lambda planned: planned.size and planned.size.cpus, 0.5, "tests/journeys/test_room_and_size.py"),
    "sandbox_memory": Effect("1Gi", lambda planned: planned.size and planned.size.memory_bytes, 2**30),
    "sandbox_processes": Effect(100, lambda planned: planned.size and planned.size.processes, 100),
    "sandbox_disk": Effect("1Gi", lambda planned: planned.size and planned.size.disk_bytes, 2**30),
    "workspace_persistence_mode": Effect(
        "diff", lambda planned: planned.plan.persistence, "diff", "tests/journeys/test_keeping_less_and_longer.py"
    ),
    "workspace_storage_scope": Effect(
        "user",
        lambda planned: planned.properties.workspace_storage_scope,
        "user",
        "tests/journeys/test_keeping_less_and_longer.py",
    ),
    "allowed_repo_patterns": Effect("contoso/*", told("'allowed_repo_patterns'", "cannot be cloned"), True),
    "egress_policy": Effect({"mode": "allowlist", "domains": ["a.example"]}, told("'egress_policy.mode'", "without network"), True),
    "github_integration_mode": Effect("github-app", told("'github_integration_mode'", "pull requests cannot be opened"), True),
    "allowed_tools": Effect("Read, Grep", lambda planned: planned.plan.tools, ("Read", "Grep"), "tests/journeys/test_endings.py"),
    "max_turns": Effect(7, lambda planned: planned.plan.limits.max_turns, 7, "tests/journeys/test_endings.py"),
    "max_total_tokens": Effect(5000, lambda planned: planned.properties.max_total_tokens, 5000, "tests/journeys/test_endings.py"),
    "max_output_bytes": Effect(2048, lambda planned: planned.plan.limits.max_output_bytes, 2048, "tests/runner_image/test_outputs.py"),
    "command_timeout_seconds": Effect(
        60, lambda planned: planned.plan.limits.command_timeout_seconds, 60, "tests/journeys/test_endings.py"
    ),
    "model_access": Effect("direct", lambda planned: planned.properties.model_access, "direct", "tests/journeys/test_direct_access.py"),
    "model": Effect("claude-other", lambda planned: planned.plan.model, "claude-other"),
    "small_model": Effect("claude-small", lambda planned: planned.plan.small_model, "claude-small"),
    "fallback_models": Effect(
        "claude-a, claude-b", lambda planned: tuple(choice.model for choice in planned.models.fallbacks), ("claude-a", "claude-b")
    ),
}


def test_every_property_has_an_effect() -> None:
    """Whoever adds a property says here what it does."""
    assert sorted(EFFECTS) == sorted(WorkflowProperties.model_fields)


@pytest.mark.parametrize("name", EFFECTS)
def test_a_property_changes_what_it_says(name: str) -> None:
    effect = EFFECTS[name]
    before, after = plan(asked({})), plan(asked({name: effect.value}))
    assert effect.seen(before) != effect.becomes
    assert effect.seen(after) == effect.becomes


@pytest.mark.parametrize("name", [name for name, effect in EFFECTS.items() if effect.shown_in])
def test_a_whole_turn_shows_it(name: str) -> None:
    """The test named in the table is there, and sets the property."""
    assert name in (ROOT / EFFECTS[name].shown_in).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name, effect in EFFECTS.items() if effect.becomes is True])
def test_a_property_without_an_effect_yet_is_said_once(name: str) -> None:
    """By its name, and in one sentence only."""
    assert plan(asked({})).remarks == ()
    (remark,) = plan(asked({name: EFFECTS[name].value})).remarks
    assert f"'{name}" in remark


def test_none_kept_and_a_wall_below_the_installations() -> None:
    """The two settings whose other values do something else."""
    assert plan(asked({"workspace_persistence_mode": "none"})).plan.persistence == "none"
    planned = plan(asked({"minimum_wall": "landlock"}), minimum_wall="namespaces")
    assert planned.plan.minimum_wall == "namespaces"
    assert "'minimum_wall' is 'landlock'; the installation demands 'namespaces'" in remarks(planned)
