"""What an administrator may write, in every spelling, and what is said about the rest."""

from typing import Any

import pytest

from workflow_schemas.properties import TOOLS, WorkflowProperties
from workflow_schemas.property_reading import read_properties


def set_values(raw: dict[str, Any] | None) -> dict[str, Any]:
    return read_properties(raw).properties.model_dump(exclude_defaults=True)


@pytest.mark.parametrize(
    "raw",
    [
        {"max_turns": 40},
        {"max_turns": "40"},
        {"max_turns": " 40 "},
        {"claude_code": {"max_turns": 40}},
        {"claude_code": {"max_turns": "40"}},
        {"claude_code": '{"max_turns": "40"}'},
        {"max_turns": 7, "claude_code": {"max_turns": 40}},
    ],
    ids=["flat", "text", "spaces", "nested", "nested text", "nested as JSON text", "nested wins"],
)
def test_every_spelling_is_read(raw: dict[str, Any]) -> None:
    reading = read_properties(raw)
    assert reading.properties.max_turns == 40
    assert (reading.remarks, reading.refusals) == ((), ())


@pytest.mark.parametrize(
    "raw", [None, {}, {"max_turns": ""}, {"max_turns": " "}, {"max_turns": None}, {"allowed_tools": ""}, {"claude_code": {}}]
)
def test_what_is_not_set_has_its_default(raw: dict[str, Any] | None) -> None:
    reading = read_properties(raw)
    assert reading.properties == WorkflowProperties()
    assert (reading.remarks, reading.refusals) == ((), ())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"sandbox_cpu": "0.5", "sandbox_memory": "1Gi"}, {"sandbox_cpu": 0.5, "sandbox_memory": "1Gi"}),
        ({"sandbox_profile": "default"}, {}),
        ({"allowed_tools": "read, BASH"}, {"allowed_tools": ("Read", "Bash")}),
        ({"allowed_tools": '["Read"]'}, {"allowed_tools": ("Read",)}),
        ({"allowed_repo_patterns": "a/*, b/*"}, {"allowed_repo_patterns": ("a/*", "b/*")}),
        ({"egress_policy": "off"}, {}),
        (
            {"egress_policy": '{"mode": "allowlist", "domains": ["packages.example.org"]}', "sandbox_profile": "custom"},
            {"egress_policy": {"mode": "allowlist", "domains": ("packages.example.org",)}, "sandbox_profile": "custom"},
        ),
    ],
    ids=["size", "profile", "tools", "tools as JSON", "patterns", "egress as word", "egress as JSON"],
)
def test_text_becomes_what_it_means(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set_values(raw) == expected
    assert not read_properties(raw).remarks


@pytest.mark.parametrize(
    ("raw", "name", "in_force"),
    [
        ({"sandbox_timeout_seconds": 5}, "sandbox_timeout_seconds", 30),
        ({"sandbox_timeout_seconds": "99999"}, "sandbox_timeout_seconds", 1620),
        ({"max_turns": 0}, "max_turns", 1),
        ({"max_total_tokens": 10}, "max_total_tokens", 1000),
        ({"max_turns": "many"}, "max_turns", 60),
        ({"sandbox_profile": "open"}, "sandbox_profile", "restricted"),
        ({"sandbox_memory": "lots"}, "sandbox_memory", None),
        ({"workspace_persistence_mode": ["x"]}, "workspace_persistence_mode", "snapshot"),
        ({"allowed_tools": "Read, WebFetch"}, "allowed_tools", ("Read",)),
    ],
)
def test_a_value_out_of_bounds_is_named_and_never_grants_more(raw: dict[str, Any], name: str, in_force: object) -> None:
    reading = read_properties(raw)
    assert getattr(reading.properties, name) == in_force
    assert len(reading.remarks) == 1
    assert not reading.refusals


@pytest.mark.parametrize("raw", [{"allowed_tools": "WebFetch"}, {"allowed_tools": 5}, {"allowed_tools": []}, {"max_total_tokens": "few"}])
def test_where_the_default_would_grant_more_the_turn_is_refused(raw: dict[str, Any]) -> None:
    """An administrator who misspells the only tool must not get all of them."""
    reading = read_properties(raw)
    assert len(reading.refusals) == 1
    assert next(iter(raw)) in reading.refusals[0]


@pytest.mark.parametrize("policy", ["on", {"mode": "allowlist", "ports": [1]}, {"mode": "allowlist", "domains": 5}, 7])
def test_a_policy_that_cannot_be_read_allows_nothing(policy: object) -> None:
    reading = read_properties({"egress_policy": policy})
    assert reading.properties.egress_policy.mode == "off"
    assert "egress_policy" in reading.remarks[0]


def test_unknown_names_are_named() -> None:
    remarks = read_properties({"colour": "red", "claude_code": {"maxTurns": 3}}).remarks
    assert [name for name in ("colour", "maxTurns") if not any(repr(name) in remark for remark in remarks)] == []


def test_a_later_version_is_read_as_this_one_and_named() -> None:
    reading = read_properties({"schema_version": 2, "max_turns": 3})
    assert reading.properties.max_turns == 3
    assert "'schema_version' is '2'" in reading.remarks[0]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("maxTurns", "max_turns"), ("max-turns", "max_turns"), ("sandbox_time_seconds", "sandbox_timeout_seconds"), ("Modell", "model")]
    + [("allowed_tool", "allowed_tools"), ("colour", ""), ("permission_mode", ""), ("x" * 10_000, "")],
    ids=["camel case", "hyphen", "forgotten letters", "too many letters", "singular", "unknown", "another product's", "endless"],
)
def test_a_slip_of_the_pen_is_recognised(written: str, meant: str) -> None:
    (remark,) = read_properties({written: 1}).remarks
    assert remark.endswith(f"has no effect. Did you mean {meant!r}?" if meant else "is not known and has no effect.")
    assert len(remark) < 200


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"max_turns": "many"}, "it must be a whole number. The default, 60, is in force."),
        ({"sandbox_cpu": "two"}, "it must be a number. It counts as not set."),
        ({"sandbox_cpu": 0}, "it must be a number above 0. It counts as not set."),
        ({"sandbox_memory": "1 GB"}, "it must be written like '1Gi'. It counts as not set."),
        ({"workspace_storage_scope": "team"}, "it must be 'conversation' or 'user'. The default, 'conversation', is in force."),
        (
            {"egress_policy": {"domain": ["a.example"]}},
            "'egress_policy.domain' was not used: there is no such setting; did you mean 'domains'. The",
        ),
    ],
)
def test_a_remark_says_what_belongs_there_and_what_holds_instead(raw: dict[str, Any], words: str) -> None:
    (remark,) = read_properties(raw).remarks
    assert words in remark


def test_a_remark_repeats_no_text_that_may_be_a_secret() -> None:
    """But for a version and the name of a tool, which are named because they are wrong."""
    secret = "sk-ant-0123456789"
    names = {"api_key", *WorkflowProperties.model_fields} - {"schema_version", "allowed_tools"}
    reading = read_properties(dict.fromkeys(names, secret))
    assert reading.remarks
    assert not [said for said in (*reading.remarks, *reading.refusals) if secret in said]


def test_everything_wrong_at_once_still_ends() -> None:
    reading = read_properties({name: {"nonsense": [name]} for name in WorkflowProperties.model_fields})
    assert reading.properties.sandbox_profile == "restricted"
    assert reading.properties.allowed_tools == TOOLS
    assert len(reading.remarks) + len(reading.refusals) == len(WorkflowProperties.model_fields)
