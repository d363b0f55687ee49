"""A conversation as the agent's CLI sends it: each request repeats everything, and the cache marks move."""

import json
import random
from collections.abc import Iterator
from typing import Any

_WORDS = (
    "def return self value path result request answer message token parse open close read write append index error raise import "
    "from assert test fixture stream buffer limit count number list dict tuple string bytes encode decode match case class"
).split()


def sentences(source: random.Random, words: int) -> str:
    """Text with about the redundancy of source code."""
    lines = [" ".join(source.choices(_WORDS, k=9)) + f" = {source.randrange(10_000)}" for _ in range(words // 10)]
    return "\n".join(lines)


def requests(calls: int, *, seed: int = 7, new_words: int = 400) -> Iterator[tuple[bytes, bytes]]:
    """Yield each request of a conversation, and the part of it that is new."""
    source = random.Random(seed)
    system: list[dict[str, Any]] = [
        {"type": "text", "text": sentences(source, 3000)},
        {"type": "text", "text": sentences(source, 500), "cache_control": CACHE},
    ]
    messages: list[dict[str, Any]] = []
    for call in range(calls):
        text = sentences(source, new_words)
        new: list[dict[str, Any]] = [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"toolu_{call:04}", "name": "Bash", "input": {"command": text[:300]}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{call:04}", "content": text}]},
        ]
        messages += new
        yield _body(system, messages), json.dumps(new).encode()


CACHE = {"type": "ephemeral"}


def _body(system: list[dict[str, Any]], messages: list[dict[str, Any]]) -> bytes:
    marked = json.loads(json.dumps(messages))
    for message in marked[-2:]:
        message["content"][-1]["cache_control"] = CACHE
    return json.dumps({"model": "m", "system": system, "messages": marked, "max_tokens": 32000, "stream": True}).encode()
