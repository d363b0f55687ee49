"""Whose difference is it? The judgement behind every plan, and what is written in the end."""

from typing import Any

import pytest

from orchestration_service.deploying.leaves import changed_since, differences, digest, digests, merged, type_first

WRITTEN: dict[str, Any] = {"type": "t", "a": {"x": 1, "y": "old"}, "tools": [{"name": "one", "properties": {"turns": 40}}]}


def told(there: dict[str, Any], wanted: dict[str, Any], *, ours: bool = True) -> list[str]:
    digested = {path: [known] for path, known in digests(WRITTEN).items()} if ours else None
    return [f"{'theirs' if leaf.is_theirs else 'ours'} {leaf}" for leaf in differences(there, wanted, digested)]


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        (WRITTEN, WRITTEN, []),
        ({**WRITTEN, "a": {"x": 1.0, "y": "old"}, "b": None, "created_on": "now"}, {**WRITTEN, "b": [], "c": {}}, []),
        (WRITTEN, {**WRITTEN, "a": {"x": 2, "y": "old"}}, ["ours a.x: 1 -> 2"]),
        ({**WRITTEN, "a": {"x": 1, "y": "his"}}, {**WRITTEN, "a": {"x": 1, "y": "new"}}, ['theirs a.y: "his" -> "new"']),
        ({**WRITTEN, "more": "his"}, WRITTEN, []),
        (WRITTEN, {**WRITTEN, "a": {"x": 1}}, ['ours a.y: "old" -> nothing']),
        ({**WRITTEN, "a": {"x": 1}}, WRITTEN, ['theirs a.y: nothing -> "old"']),
        (
            {**WRITTEN, "tools": [{"name": "his"}, {"name": "one", "properties": {"turns": 9}}]},
            WRITTEN,
            ["theirs tools.[one].properties.turns: 9 -> 40"],
        ),
    ],
    ids=["same", "same-in-other-words", "upgrade", "both-changed", "added-by-others", "dropped-by-us", "dropped-by-others", "in-a-list"],
)
def test_whose_difference_it_is(there: dict[str, Any], wanted: dict[str, Any], expected: list[str]) -> None:
    assert told(there, wanted) == expected


def test_nothing_is_ours_in_what_we_never_wrote() -> None:
    assert told({"type": "t", "a": {"x": 3}}, {"type": "t", "a": {"x": 1}}, ours=False) == ["theirs a.x: 3 -> 1"]


def test_what_the_portal_wipes_is_nobodys_choice() -> None:
    written = {"workflow": {"properties": {"k": "v"}}, "conversation_history_settings": {"history_content_artifact_types": "File"}}
    saved = {"workflow": {"properties": None}, "conversation_history_settings": {"history_content_artifact_types": ""}}
    digested = {path: [known] for path, known in digests(written).items()}
    assert [leaf.is_theirs for leaf in differences(saved, written, digested)] == [False, False]
    assert changed_since(saved, digested) == ()


def test_what_is_taken_away_leaves_no_shell() -> None:
    """An upgrade to another main model: a reference without its object id could not be read any more."""
    there = {
        "uses": {"/old": {"object_id": "/old", "properties": {"object_role": "main", "parameters": {}}}, "/his": {"object_id": "/his"}}
    }
    wanted = {"uses": {"/new": {"object_id": "/new"}}}
    written = {f"uses./old.{path}": [digest(value)] for path, value in (("object_id", "/old"), ("properties.object_role", "main"))}
    assert merged(there, differences(there, wanted, written)) == {"uses": {"/his": {"object_id": "/his"}, "/new": {"object_id": "/new"}}}


def test_a_merge_writes_the_chosen_leaves_and_nothing_else() -> None:
    there = {"name": "n", "tools": [{"name": "his", "p": 1}, {"name": "gone", "p": 1}], "theirs": True, "type": "t"}
    leaves = differences(
        there, {"name": "n", "type": "t", "tools": [{"name": "one", "p": {"q": 2}}]}, {"tools.[gone].name": [], "tools.[gone].p": []}
    )
    assert type_first(merged(there, leaves)) == {
        "type": "t",
        "name": "n",
        "tools": [{"name": "his", "p": 1}, {"name": "one", "p": {"q": 2}}],
        "theirs": True,
    }
    assert list(type_first(merged(there, leaves))) == ["type", "name", "tools", "theirs"]
