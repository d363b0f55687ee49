"""The demo's screen: the same words on a terminal and in a pipe, whatever the lines are."""

import re
from typing import Any

import pytest

from orchestration_service.cli.screen import Screen

_EVENTS: list[dict[str, Any]] = [
    {"type": "progress", "step": "open", "message": "Opening a sandbox."},
    {"type": "tool_start", "id": "1", "name": "Bash", "input": {"command": "echo `hi`\nls"}},
    {"type": "tool_end", "id": "1", "name": "Bash", "success": False, "output": "", "duration_seconds": 0.1},
    {"type": "model_call", "input_tokens": 5, "output_tokens": 7, "status": 200},
    {"type": "text", "content": ""},
    {"type": "something_new"},
]


@pytest.mark.parametrize("live", [True, False], ids=["terminal", "pipe"])
def test_every_line_can_be_shown(live: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Empty lines, patch lines and headings; a pipe sees no escape sequences."""
    screen = Screen(live=live)
    screen.title("Patch")
    screen.block("+++ b/a\n--- a/a\n+new\n-old\n\n same\n")
    screen.table([("a", "1"), ("long name", "22")], ("name", "bytes"))
    screen.data({"empty": "", "list": [1], "text": "words"})
    said = capsys.readouterr().out
    assert ("\x1b[32m" in said) is live
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "", said)
    assert plain.splitlines()[:8] == ["", "Patch", "  +++ b/a", "  --- a/a", "  +new", "  -old", "  ", "   same"]


def test_activity_is_shown_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    """A line per call and its end; tokens are counted; an unknown event is passed over."""
    screen = Screen(live=False)
    for event in _EVENTS:
        screen.event(event)
    said = capsys.readouterr().out
    assert "→ Bash echo 'hi' ls" in said
    assert "failed in 0.10 s" in said
    assert "1 model calls · 12 tokens" in screen.figures()
