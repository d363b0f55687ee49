"""Examples in the documents that are run: fenced blocks whose first line names a kind after the language, such as ```json settings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))

_FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})(?P<words>[^\n`]*)\n(?P<text>.*?)^(?P=mark)\s*$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A block that is meant to be run."""

    document: str
    line: int
    language: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}-{self.kind}"


def examples() -> tuple[Example, ...]:
    """Every marked block of every document."""
    return tuple(found for document in DOCUMENTS for found in of_text(document.name, document.read_text(encoding="utf-8")))


def of_text(name: str, text: str) -> Iterator[Example]:
    """The marked blocks of one document; a block with a language only is there to be read."""
    for block in _FENCE.finditer(text):
        language, _, kind = block["words"].strip().partition(" ")
        if kind:
            yield Example(name, text.count("\n", 0, block.start()) + 1, language, kind.strip(), block["text"])
