"""The wall a turn must have: who may demand one, what is planned, and what the user is told when there is less."""

from typing import Any, get_args

import pytest

from orchestration_service.answering import compose
from orchestration_service.errors import PlanRefused
from orchestration_service.planning import Planned
from orchestration_service.settings import load_settings
from orchestration_service.walls import explain_refusal, unkept_demand
from tests.orchestration_service.turns import asked, manifest, plan, receipt
from workflow_schemas.walls import EVERY_WALL, GUARDS, WallFacts, WallLevel, is_weaker, stricter

LEVELS: tuple[WallLevel, ...] = get_args(WallLevel)


def wall(level: WallLevel) -> WallFacts:
    return WallFacts(level=level, kind="wood", guards=tuple(GUARDS[level]))


def planned(workflow: str | None = None, installation: WallLevel | None = None) -> Planned:
    return plan(asked({"minimum_wall": workflow} if workflow else {}), minimum_wall=installation)


def test_a_stronger_wall_keeps_more() -> None:
    assert [set(GUARDS[level]) >= set(EVERY_WALL) for level in LEVELS] == [True, True]
    assert all(set(GUARDS[weaker]) < set(GUARDS[stronger]) for weaker, stronger in zip(LEVELS, LEVELS[1:], strict=False))
    assert (is_weaker("landlock", "namespaces"), is_weaker("namespaces", "landlock"), is_weaker("landlock", None)) == (True, False, False)
    assert (stricter(), stricter(None, "landlock")) == (None, "landlock")


@pytest.mark.parametrize(
    ("workflow", "installation", "expected"),
    [
        (None, None, None),
        ("landlock", None, "landlock"),
        (None, "namespaces", "namespaces"),
        ("landlock", "namespaces", "namespaces"),
        ("namespaces", "landlock", "namespaces"),
        (" ", "landlock", "landlock"),
    ],
    ids=["nobody", "the workflow", "the installation", "the installation more", "the workflow more", "an empty text"],
)
def test_the_stricter_demand_counts(workflow: str | None, installation: WallLevel | None, expected: WallLevel | None) -> None:
    assert planned(workflow, installation).plan.minimum_wall == expected


def test_a_demand_that_makes_no_sense_is_refused() -> None:
    """The default would be satisfied with any wall."""
    with pytest.raises(PlanRefused, match="'minimum_wall'.*Choose 'landlock' or 'namespaces'"):
        planned("concrete")


def test_the_installation_demands_by_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_MINIMUM_WALL", "namespaces")
    assert load_settings(instance_id="i", api_key="long enough").minimum_wall == "namespaces"


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (planned("namespaces"), ["'minimum_wall'", "administrator", "docs/walls.md", "send the message again"]),
        (planned(None, "namespaces"), ["CLAUDE_CODE_MINIMUM_WALL", "docs/walls.md"]),
        (planned(), ["No wall. Then send the message again"]),
    ],
    ids=["the workflow", "the installation", "nobody, and there is none at all"],
)
def test_a_refusal_says_who_can_do_what(known: Planned, words: list[str]) -> None:
    told = explain_refusal(manifest(end_reason="refused", answer="", detail="No wall."), known)
    answer = compose(asked(), "op-1", known, told, receipt(end_reason="refused", detail=told.detail, wall=wall("landlock")))
    assert [word for word in ("The agent was not started: No wall.", *words) if word not in answer.completion] == []
    assert answer.is_error
    assert "wall between agent and runner" not in answer.content[0].model_dump_json(), "no agent stood behind it"


def test_other_ends_are_left_as_they_are() -> None:
    run = manifest(end_reason="agent_error", detail="It fell over.")
    assert explain_refusal(run, planned("namespaces")) == run


@pytest.mark.parametrize(
    ("run", "demanded", "told"),
    [
        ({"wall": wall("namespaces")}, "namespaces", False),
        ({"wall": wall("landlock")}, None, False),
        ({"wall": wall("landlock"), "end_reason": "refused"}, "namespaces", False),
        ({"wall": wall("landlock")}, "namespaces", True),
        ({}, "namespaces", True),
    ],
    ids=["kept", "not demanded", "refused", "weaker", "none told"],
)
def test_a_runner_that_does_not_know_the_demand_is_told_on(run: dict[str, Any], demanded: str | None, told: bool) -> None:
    remarks = unkept_demand(manifest(**run), planned(demanded))
    assert bool(remarks) == told
    assert not told or "'namespaces'" in remarks[0]
