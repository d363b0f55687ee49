"""What the demo prints: activity as it happens, then the answer, the receipt, the files and the patch."""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from orchestration_service.progress import Progress, describe_tool

_MARKS: Mapping[str, str] = {"tool_start": "→", "text": "✎", "progress": "·", "warning": "!", "error": "!"}


class Screen:
    """Writes to standard output; on a terminal the last line shows time and tokens.

    Args:
        live: Whether the last line may be rewritten, and colours used.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._progress = Progress()
        self._started = time.monotonic()

    def title(self, text: str) -> None:
        """Print a heading."""
        self._line(f"\n{self._bold(text)}")

    def say(self, text: str) -> None:
        """Print a sentence."""
        self._line(text)

    def event(self, event: dict[str, Any]) -> None:
        """Print an activity event."""
        self._progress.take(event)
        kind = str(event.get("type"))
        at = f"{time.monotonic() - self._started:6.1f} s"
        if kind == "model_call":
            self._progress.model_calls += 1
            self._progress.prompt_tokens += int(event.get("input_tokens", 0))
            self._progress.completion_tokens += int(event.get("output_tokens", 0))
        elif kind == "tool_start":
            self._line(f"{at}  {_MARKS[kind]} {describe_tool(event)}")
        elif kind == "tool_end":
            verdict = "ok" if event.get("success") else "failed"
            last = str(event.get("output", "")).strip().splitlines()[-1:] or [""]
            self._line(f"{' ' * 8}    {verdict} in {float(event.get('duration_seconds', 0)):.2f} s  {last[0][:90]}")
        elif kind in _MARKS:
            words = event.get("content") or event.get("message") or event.get("error") or ""
            if str(words).strip():
                self._line(f"{at}  {_MARKS[kind]} {' '.join(str(words).split())[:200]}")
        self._status()

    def table(self, rows: list[tuple[str, ...]], headings: tuple[str, ...]) -> None:
        """Print a table; the columns are as wide as they need to be."""
        widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
        for row in [headings, tuple("─" * width for width in widths), *rows]:
            self._line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def data(self, value: dict[str, Any]) -> None:
        """Print names and values, one a line."""
        for name, inner in value.items():
            if inner not in ("", None, [], {}):
                self._line(f"  {name + ':':22} {inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)}")

    def block(self, text: str, *, limit: int = 120) -> None:
        """Print lines of text, additions and removals of a patch in colour."""
        lines = text.splitlines()
        for line in lines[:limit]:
            self._line(f"  {self._patch_color(line)}")
        if len(lines) > limit:
            self._line(f"  … {len(lines) - limit} more lines")

    def _status(self) -> None:
        if self._live:
            figures = self._progress.figures().strip("_")
            sys.stdout.write(f"\r\x1b[2K\x1b[2m{figures[: shutil.get_terminal_size().columns - 1]}\x1b[0m")
            sys.stdout.flush()

    def figures(self) -> str:
        """Return time, model calls and tokens in one line."""
        return self._progress.figures().strip("_")

    def _line(self, text: str) -> None:
        clear = "\r\x1b[2K" if self._live else ""
        sys.stdout.write(f"{clear}{text}\n")
        sys.stdout.flush()

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._live else text

    def _patch_color(self, line: str) -> str:
        if self._live and line.startswith(("+", "-")) and not line.startswith(("+++", "---")):
            return f"\x1b[{32 if line[0] == '+' else 31}m{line}\x1b[0m"
        return line
