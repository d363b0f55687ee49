"""What the user reads while the turn runs."""

import re
from typing import Any

import pytest

from orchestration_service.progress import Progress, describe_tool


def shown(*events: dict[str, Any]) -> list[str]:
    progress = Progress()
    for event in events:
        progress.take(event)
    return progress.text().splitlines()


def test_there_is_something_to_read_from_the_first_moment() -> None:
    assert re.fullmatch(r"_\d+ s · 0 model calls · 0 tokens_", Progress().text())


def test_a_turn_as_it_is_told() -> None:
    lines = shown(
        {"type": "progress", "step": "open", "message": "Opening a sandbox."},
        {"type": "progress", "step": "quiet", "message": ""},
        {"type": "text", "content": "I look at\nthe files."},
        {"type": "tool_start", "id": "1", "name": "Read", "input": {"file_path": "/workspace/a.py"}},
        {"type": "tool_start", "id": "2", "name": "Bash", "input": {"command": "false"}},
        {"type": "tool_end", "id": "2", "success": False},
        {"type": "tool_end", "id": "1", "success": True},
        {"type": "tool_end", "id": "never started", "success": False},
        {"type": "warning", "message": "The time is nearly up."},
        {"type": "model_call", "status": 200},
        {"type": "of the future"},
    )
    assert lines[:5] == [
        "- Opening a sandbox.",
        "- I look at the files.",
        "- `Read /workspace/a.py`",
        "- `Bash false` (failed)",
        "- **The time is nearly up.**",
    ]
    assert lines[5] == ""


def test_many_steps_show_the_last_ones() -> None:
    lines = shown(*({"type": "progress", "message": f"step {number}"} for number in range(1000)))
    assert lines[0] == "- … 988 earlier steps"
    assert (lines[1], lines[12]) == ("- step 988", "- step 999")
    assert len(lines) == 15


def test_text_grows_while_it_is_written_and_gives_way_to_the_event() -> None:
    progress = Progress()
    for piece in ("I am ", "writing."):
        progress.write(piece)
    assert "I am writing." in progress.text()
    progress.write(None)
    assert "writing" not in progress.text()
    progress.write("again")
    progress.take({"type": "text", "content": "said"})
    assert "again" not in progress.text()


def test_a_long_text_shows_its_end() -> None:
    """Each poll carries the whole progress; it must stay small."""
    progress = Progress()
    for number in range(50_000):
        progress.write(f"{number} ")
    assert "… " in progress.text()
    assert "49999" in progress.text()
    assert len(progress.text()) < 5000


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"name": "Bash", "input": {"command": "ls\n-l", "description": "List"}}, "Bash ls -l"),
        ({"name": "Grep", "input": {"pattern": "x", "path": "/workspace"}}, "Grep x"),
        ({"name": "Edit", "input": {"file_path": "a.py", "old_string": "…"}}, "Edit a.py"),
        ({"name": "Odd", "input": {"a": [1]}}, 'Odd {"a": [1]}'),
        ({"name": "None", "input": {}}, "None"),
        ({"name": "Code", "input": {"command": "`x` ```"}}, "Code 'x' '''"),
    ],
)
def test_a_tool_call_in_a_few_words(event: dict[str, Any], words: str) -> None:
    assert describe_tool(event) == words


def test_no_line_is_wider_than_a_line() -> None:
    (line, *_) = shown({"type": "tool_start", "id": "1", "name": "Bash", "input": {"command": "x" * 10_000}})
    assert len(line) < 130
    assert line.endswith("…`")
