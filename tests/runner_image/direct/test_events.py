"""Events on standard output: the names and fields of the module the project started from, and lines nothing can break."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from runner_image.direct import (
    EventType,
    emit_confirm_request,
    emit_device_code,
    emit_done,
    emit_error,
    emit_event,
    emit_progress,
    emit_text,
    emit_tool_end,
    emit_tool_start,
    emit_warning,
)


@pytest.mark.parametrize(
    ("emit", "line"),
    [
        pytest.param(lambda: emit_progress("test", "Testing"), '{"type": "progress", "step": "test", "message": "Testing"}', id="progress"),
        pytest.param(lambda: emit_event("progress", step="test"), '{"type": "progress", "step": "test"}', id="by name"),
        pytest.param(lambda: emit_text("hi"), '{"type": "text", "content": "hi"}', id="text"),
        pytest.param(
            lambda: emit_device_code("A1", "https://x/y"),
            '{"type": "device_code", "code": "A1", "url": "https://x/y", "message": ""}',
            id="device code",
        ),
        pytest.param(lambda: emit_tool_start("Bash", {"a": 1}), '{"type": "tool_start", "name": "Bash", "input": {"a": 1}}', id="start"),
        pytest.param(lambda: emit_tool_end("Bash", False), '{"type": "tool_end", "name": "Bash", "success": false}', id="end"),
        pytest.param(
            lambda: emit_confirm_request("r", "Bash"),
            '{"type": "confirm_request", "request_id": "r", "tool_name": "Bash", "description": "", "details": {}}',
            id="confirm request",
        ),
        pytest.param(lambda: emit_warning("Odd."), '{"type": "warning", "message": "Odd."}', id="warning"),
        pytest.param(lambda: emit_done("s", 5), '{"type": "done", "session_id": "s", "turns": 5}', id="done"),
        pytest.param(lambda: emit_error("Bad."), '{"type": "error", "error": "Bad."}', id="error"),
    ],
)
def test_an_event_is_one_line(emit: Callable[[], None], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    emit()
    assert capsys.readouterr().out == line + "\n"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param('x\n{"type": "done"}\r\x85\u2028\u2029\x00', id="line ends"),
        pytest.param("\ud800 alone", id="lone surrogate"),
        pytest.param({"a": [float("nan"), float("inf"), {1: {2}}, b"bytes", object]}, id="no JSON"),
    ],
)
def test_whatever_an_event_carries_it_stays_one_line_of_ascii(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    emit_event(EventType.TEXT, content=value)
    written = capsys.readouterr().out
    assert written.isascii()
    assert written.endswith("\n")
    assert len(written.splitlines()) == 1
    assert json.loads(written)["type"] == "text"


def test_a_tree_without_an_end_does_not_stop_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    endless: dict[str, object] = {}
    endless["self"] = endless
    emit_tool_start("Bash", endless)
    assert json.loads(capsys.readouterr().out)["name"] == "Bash"


def test_fields_cannot_change_the_type(capsys: pytest.CaptureFixture[str]) -> None:
    emit_event("text", type="done", content="x")
    assert json.loads(capsys.readouterr().out) == {"type": "text", "content": "x"}


def test_an_event_is_there_before_the_program_ends() -> None:
    """Each line is flushed: the reader sees it while the work goes on."""
    code = "import sys; from runner_image.direct import emit_text; emit_text('now'); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["content"] == "now"
