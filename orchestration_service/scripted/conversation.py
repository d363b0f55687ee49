"""Which step of a script a request asks for: pure judgement over the request's body.

By default nothing is remembered. A Messages request repeats the whole conversation, so the number of answers in it
says how far it has come; a request that is sent again, by a retry or by a service that took the work over, gets the
same answer again.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestration_service.scripted.script import Script, Step

SESSION_HEADER = "x-claude-code-session-id"

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


@dataclass(frozen=True)
class Position:
    """Where in a script a request stands."""

    part: str
    """Which list of steps is played: ``steps``, or ``rules[N]``."""
    steps: tuple[Step, ...]
    """The steps of that list."""
    answered: int
    """How many answers of that list the conversation holds already."""

    def index(self, when_over: str) -> int | None:
        """Give the number of the step to play, or nothing when the script is over."""
        if self.answered < len(self.steps):
            return self.answered
        if not self.steps or when_over == "refuse":
            return None
        return self.answered % len(self.steps) if when_over == "loop" else len(self.steps) - 1


def find_position(script: Script, body: Mapping[str, Any]) -> Position:
    """Find the steps that fit a request and how many of them were played, judged by the request alone."""
    messages = [message for message in body.get("messages") or () if isinstance(message, dict)]
    prompts = [number for number, message in enumerate(messages) if _is_prompt(message)]
    last = prompts[-1] if prompts else 0
    since_prompt = _answers(messages[last:])
    prompt = _prompt_text(messages[last]) if messages else ""
    for number, rule in enumerate(script.rules):
        if re.search(rule.pattern, prompt):
            return Position(f"rules[{number}]", rule.steps, since_prompt)
    answered = since_prompt if script.stepping == "by_turn" else _answers(messages)
    return Position("steps", script.steps, answered)


def conversation_key(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Name the conversation a request belongs to: by its session header, else its user id, else its first prompt."""
    session = headers.get(SESSION_HEADER)
    if session:
        return f"session:{session}"
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.get("user_id"):
        return f"user:{metadata['user_id']}"
    first = next((message for message in body.get("messages") or () if isinstance(message, dict)), {})
    return f"prompt:{hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()[:32]}"


def _answers(messages: list[dict[str, Any]]) -> int:
    return sum(message.get("role") == "assistant" for message in messages)


def _is_prompt(message: Mapping[str, Any]) -> bool:
    """A prompt is a user message that brings no tool results; those belong to the turn that asked for them."""
    if message.get("role") != "user":
        return False
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return not any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


def _prompt_text(message: Mapping[str, Any]) -> str:
    return _REMINDER.sub("", "\n".join(_texts(message.get("content")))).strip()


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            yield str(block.get("text", ""))
