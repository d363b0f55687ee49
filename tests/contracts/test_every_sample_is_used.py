"""No sample is forgotten: each is named by a test, so that a new one fails here until something is said about it.

A test names a sample by its file name, with or without its ending and its folder; or by a pattern such as `f"container.{name}.json"`
whose parts stand as texts of their own in the same module.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SAMPLES = Path(__file__).parent / "samples"


def names_of(sample: Path) -> set[str]:
    """Return how a test may call a sample."""
    path = sample.relative_to(SAMPLES).as_posix()
    return {name for whole in (path, sample.name) for name in (whole, whole.rpartition(".")[0])}


class Module:
    """The texts and patterns of one test module."""

    def __init__(self, source: str) -> None:
        nodes = list(ast.walk(ast.parse(source)))
        self.texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        self.patterns = [re.compile(_pattern(node)) for node in nodes if isinstance(node, ast.JoinedStr)]

    def names(self, called: set[str]) -> bool:
        """Whether one of these names stands in the module, as a text or as a pattern filled with its texts."""
        if called & self.texts:
            return True
        fillings = (pattern.fullmatch(name) for pattern in self.patterns for name in called)
        return any(found is not None and set(found.groups()) <= self.texts for found in fillings)


def _pattern(joined: ast.JoinedStr) -> str:
    parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else "(.*)" for part in joined.values]
    return "".join(parts)


def modules() -> Iterator[Module]:
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__):
            yield Module(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def read() -> list[Module]:
    return list(modules())


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*/*")), ids=lambda path: path.name)
def test_a_sample_is_named_by_a_test(sample: Path, read: list[Module]) -> None:
    assert any(module.names(names_of(sample)) for module in read), f"no test names {sample.name!r}: write one that reads it"


def test_samples_lie_in_folders() -> None:
    """What lies elsewhere would not be looked at."""
    assert {path.parent.parent for path in SAMPLES.rglob("*") if path.is_file()} == {SAMPLES}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('read("area/status.new.json")', True),
        ('read("status.new")', True),
        ('[read(f"status.{name}.json") for name in ("old", "new")]', True),
        ('[read(f"status.{name}.json") for name in ("old", "newer")]', False),
        ('"""Tells of status.new.json."""', False),
        ('read("status.newer.json")', False),
    ],
    ids=["path", "stem", "pattern", "pattern with other parts", "in passing", "longer"],
)
def test_a_name_is_found_where_it_is_meant(source: str, named: bool) -> None:
    assert Module(source).names(names_of(SAMPLES / "area" / "status.new.json")) is named
