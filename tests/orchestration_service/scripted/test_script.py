"""Script files: what they may hold, how their placeholders are filled, which step a request gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.scripted.conversation import conversation_key, find_position
from orchestration_service.scripted.errors import ScriptInvalid, ScriptNotFound
from orchestration_service.scripted.script import Script, load_script, shipped_script

USER: dict[str, Any] = {"role": "user", "content": "Please fix it"}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": [{"type": "tool_use"}]}
RESULT: dict[str, Any] = {"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": "and now this"}]}
SYSTEM: dict[str, Any] = {"role": "system", "content": "be brief"}
FOLLOW_UP: dict[str, Any] = {
    "role": "user",
    "content": [
        {"type": "text", "text": "<system-reminder>undo nothing</system-reminder>"},
        {"type": "text", "text": "now undo it"},
    ],
}


def script(**fields: Any) -> Script:
    """Give a script of three steps with these fields."""
    return Script.model_validate({"name": "t", "steps": [{"text": str(number)} for number in range(3)], **fields})


def position(script: Script, *messages: dict[str, Any]) -> tuple[str, int | None]:
    """Give the part and the step for a request with these messages."""
    found = find_position(script, {"messages": list(messages)})
    return found.part, found.index(script.when_over)


@pytest.mark.parametrize(
    ("messages", "step"),
    [
        pytest.param([USER], 0, id="first"),
        pytest.param([USER, SYSTEM, ASSISTANT, RESULT], 1, id="after_a_tool"),
        pytest.param([USER, ASSISTANT, RESULT, ASSISTANT, FOLLOW_UP], 2, id="next_turn"),
        pytest.param([USER, ASSISTANT, RESULT, ASSISTANT, RESULT, ASSISTANT, USER], None, id="over"),
        pytest.param([], 0, id="nothing"),
    ],
)
def test_the_step_is_the_number_of_answers_in_the_request(messages: list[dict[str, Any]], step: int | None) -> None:
    assert position(script(), *messages) == ("steps", step)


def test_by_turn_starts_again_with_each_prompt() -> None:
    by_turn = script(stepping="by_turn")
    assert position(by_turn, USER, ASSISTANT, RESULT, ASSISTANT, FOLLOW_UP) == ("steps", 0)
    assert position(by_turn, USER, ASSISTANT, USER, ASSISTANT, RESULT) == ("steps", 1)


def test_a_rule_wins_and_counts_from_its_prompt() -> None:
    with_rule = script(rules=[{"pattern": "undo it$", "steps": [{"text": "a"}, {"text": "b"}]}])
    assert position(with_rule, USER, ASSISTANT) == ("steps", 1)
    assert position(with_rule, USER, ASSISTANT, FOLLOW_UP) == ("rules[0]", 0)
    assert position(with_rule, USER, ASSISTANT, FOLLOW_UP, ASSISTANT, RESULT) == ("rules[0]", 1)


def test_reminders_of_the_cli_are_no_prompt() -> None:
    assert position(script(rules=[{"pattern": "nothing", "steps": [{"text": "a"}]}]), FOLLOW_UP) == ("steps", 0)


@pytest.mark.parametrize(("when_over", "step"), [("refuse", None), ("repeat_last", 2), ("loop", 1)])
def test_when_a_script_is_over(when_over: str, step: int | None) -> None:
    assert position(script(when_over=when_over), USER, *[ASSISTANT, RESULT] * 4) == ("steps", step)


@pytest.mark.parametrize(
    ("headers", "body", "key"),
    [
        ({"x-claude-code-session-id": "s1"}, {"metadata": {"user_id": "u"}}, "session:s1"),
        ({}, {"metadata": {"user_id": "u"}}, "user:u"),
    ],
    ids=["header", "user_id"],
)
def test_conversations_are_told_apart(headers: dict[str, str], body: dict[str, Any], key: str) -> None:
    assert conversation_key(headers, body) == key


def test_without_names_the_first_message_tells_conversations_apart() -> None:
    first = conversation_key({}, {"messages": [USER]})
    assert first == conversation_key({}, {"messages": [USER, ASSISTANT]})
    assert first != conversation_key({}, {"messages": [FOLLOW_UP]})


def test_placeholders_are_filled_everywhere_and_nothing_else_is_touched() -> None:
    tool = {"name": "Write", "input": {"paths": ["{{workspace}}/a"], "content": "{{ workspace }} {{other}} {x}"}}
    filled = script(steps=[{"text": "in {{workspace}}", "tool_use": [tool]}]).filled({"workspace": "/w"})
    assert filled.steps[0].text == "in /w"
    assert filled.steps[0].tool_use[0].input == {"paths": ["/w/a"], "content": "{{ workspace }} {{other}} {x}"}


def test_a_value_nobody_asked_for_is_refused() -> None:
    with pytest.raises(ScriptInvalid, match="worspace"):
        script().filled({"worspace": "/w"})


@pytest.mark.parametrize("name", ["demo", "edit_eight"])
def test_shipped_scripts_work_in_the_sandboxs_workspace(name: Any) -> None:
    shown = shipped_script(name).filled().model_dump_json()
    assert "/workspace/pricing/discount.py" in shown
    assert "{{" not in shown


def test_edit_eight_has_eight_steps() -> None:
    tools = [[tool.name for tool in step.tool_use] for step in shipped_script("edit_eight").steps]
    assert tools == [["Read"], ["Grep"], ["Edit"], ["Write"], ["Bash"], ["Glob"], ["Bash"], []]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        pytest.param({"name": "t"}, "steps or rules", id="empty"),
        pytest.param({"name": "t", "steps": [{}]}, "steps.0", id="empty_step"),
        pytest.param({"name": "t", "steps": [{"text": "a", "tool": []}]}, "steps.0.tool", id="unknown_field"),
        pytest.param({"name": "t", "steps": [{"text": "a", "fault_times": 1}]}, "fault_times", id="times_of_nothing"),
        pytest.param({"name": "t", "rules": [{"pattern": "(", "steps": [{"text": "a"}]}]}, "rules.0", id="pattern"),
        pytest.param({"name": "t", "steps": [{"http": {"status": 500}, "malformed": "html"}]}, "one of", id="two_faults"),
    ],
)
def test_what_is_no_script_is_refused_with_its_place(content: dict[str, Any], place: str, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ScriptInvalid, match=place):
        load_script(path)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ScriptNotFound, match=r"nothing\.json"):
        load_script(tmp_path / "nothing.json")
    with pytest.raises(ScriptNotFound, match="demo"):
        shipped_script("other")  # type: ignore[arg-type]
