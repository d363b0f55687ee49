"""Settings that do not go together are named with both names; settings that do, and mere defaults, are not."""

from typing import Any

import pytest

from workflow_schemas.property_reading import read_properties

ALLOWING = {"mode": "allowlist", "domains": ["docs.example.com"]}
CONTRADICTORY: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a command longer than its turn": (
        {"command_timeout_seconds": 300, "sandbox_timeout_seconds": 120},
        ["'command_timeout_seconds' (300)", "'sandbox_timeout_seconds' (120)", "after 120 s"],
    ),
    "a command longer than the default turn": ({"command_timeout_seconds": 1000}, ["'sandbox_timeout_seconds' (900)"]),
    "a limit of commands without a shell": (
        {"command_timeout_seconds": 60, "allowed_tools": "Read"},
        ["'command_timeout_seconds' and 'allowed_tools'", "no shell"],
    ),
    "destinations, but off": (
        {"egress_policy": {"mode": "off", "domains": ["a.example"], "cidrs": ["10.0.0.0/8"]}},
        ["'egress_policy.mode'", "'egress_policy.domains' and 'egress_policy.cidrs'", "nothing was reachable"],
    ),
    "an empty list": (
        {"egress_policy": "allowlist", "sandbox_profile": "custom"},
        ["'egress_policy.mode'", "'egress_policy.domains'", "nothing is allowed"],
    ),
    "egress of a restricted sandbox": ({"egress_policy": ALLOWING}, ["'sandbox_profile'", "'egress_policy.mode'", "without network"]),
    "internet without egress": (
        {"sandbox_profile": "internet-enabled", "egress_policy": "off"},
        ["'sandbox_profile'", "'egress_policy.mode'", "the stricter one"],
    ),
    "nothing kept for the user": (
        {"workspace_persistence_mode": "none", "workspace_storage_scope": "user"},
        ["'workspace_persistence_mode'", "'workspace_storage_scope'", "nothing is kept"],
    ),
    "repositories without GitHub": (
        {"github_integration_mode": "none", "allowed_repo_patterns": "contoso/*"},
        ["'github_integration_mode'", "'allowed_repo_patterns'"],
    ),
    "little memory": ({"sandbox_memory": "300Mi"}, ["'sandbox_memory' is '300Mi'", "512Mi"]),
}


@pytest.mark.parametrize("case", CONTRADICTORY)
def test_both_are_named_with_what_holds(case: str) -> None:
    raw, words = CONTRADICTORY[case]
    (remark,) = read_properties(raw).remarks
    assert [word for word in words if word not in remark] == []


@pytest.mark.parametrize(
    "raw",
    [
        {"sandbox_timeout_seconds": 60},
        {"allowed_tools": "Read"},
        {"egress_policy": ALLOWING, "sandbox_profile": "custom"},
        {"sandbox_profile": "internet-enabled"},
        {"workspace_persistence_mode": "none"},
        {"workspace_persistence_mode": "diff", "workspace_storage_scope": "user"},
        {"sandbox_memory": "0.5Gi"},
    ],
    ids=["default of commands", "no shell", "egress", "internet", "nothing kept", "difference kept", "enough memory"],
)
def test_what_goes_together_is_not_remarked(raw: dict[str, Any]) -> None:
    assert read_properties(raw).remarks == ()
