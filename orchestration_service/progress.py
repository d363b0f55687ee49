"""What the user reads while the turn runs: a growing list of what the agent did, and one line with time and tokens.

The portal shows only the text of an intermediate result (contract: orchestration §4.3), and animates what was added to it.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any

_LINES = 12
_WIDTH = 110
_WRITING = 4_000


@dataclass
class Progress:
    """The visible progress of one turn."""

    started: float = field(default_factory=time.monotonic)
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    waiting: str = ""
    """What the turn waits for at this moment."""
    _lines: list[str] = field(default_factory=list)
    _open: dict[str, int] = field(default_factory=dict)
    _writing: str = ""

    def take(self, event: dict[str, Any]) -> None:
        """Add an activity event."""
        match event.get("type"):
            case "progress" if event.get("message"):
                self._lines.append(str(event["message"]))
            case "text":
                self._writing = ""
                self._lines.append(_short(str(event.get("content", ""))))
            case "tool_start":
                self._open[str(event.get("id"))] = len(self._lines)
                self._lines.append(f"`{describe_tool(event)}`")
            case "tool_end":
                line = self._open.pop(str(event.get("id")), None)
                if line is not None and not event.get("success", True):
                    self._lines[line] += " (failed)"
            case "warning":
                self._lines.append(f"**{_short(str(event.get('message', '')))}**")

    def write(self, text: str | None) -> None:
        """Add to the text the model is writing; None when it begins anew. Of a long one the end is shown."""
        self._writing = "" if text is None else (self._writing + text)[-2 * _WRITING :]

    def text(self) -> str:
        """Return the progress as Markdown, never empty."""
        hidden = max(0, len(self._lines) - _LINES)
        shown = [f"- {line}" for line in self._lines[hidden:]]
        if hidden:
            shown.insert(0, f"- … {hidden} earlier steps")
        if self.waiting:
            shown.append(f"- {self.waiting}")
        written = self._writing.strip()
        written = f"… {written[-_WRITING:]}" if len(written) > _WRITING else written
        writing = ["", written] if written else []
        return "\n".join([*shown, *writing, "", self.figures()]).strip()

    def figures(self) -> str:
        """Return elapsed time, model calls and tokens in one line."""
        seconds = int(time.monotonic() - self.started)
        tokens = self.prompt_tokens + self.completion_tokens
        return f"_{seconds} s · {self.model_calls} model calls · {tokens:,} tokens_"


def describe_tool(event: dict[str, Any]) -> str:
    """Return a tool call in a few words, such as `Edit /workspace/a.py`."""
    arguments = event.get("input") or {}
    for name in ("command", "file_path", "pattern", "path", "description"):
        if isinstance(arguments.get(name), str):
            return _short(f"{event.get('name')} {arguments[name]}")
    return _short(f"{event.get('name')} {json.dumps(arguments) if arguments else ''}")


def _short(text: str) -> str:
    flat = " ".join(text.replace("`", "'").split())
    return flat if len(flat) <= _WIDTH else f"{flat[: _WIDTH - 1]}…"
