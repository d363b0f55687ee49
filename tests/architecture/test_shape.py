"""No globals, no work at import, no words that say nothing."""

import ast
import importlib
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import LIBRARIES, Module, source_modules, told

EMPTY_WORDS = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "misc", "impl"}
EMPTY_CLASS_WORDS = re.compile(r"(?:^|_)(?:Abstract|Mock)(?=[A-Z])|(?:Impl|Manager|Helpers?|Utils?)$")

READ_ONLY = {"Mapping", "Sequence", "Set", "AbstractSet", "Collection", "Final[Mapping", "Final[Sequence"}
"""Annotations that let the type checker refuse a change."""

QUIET_CALLS = frozenset(
    {"frozenset", "tuple", "len", "range", "max", "min", "int", "float", "str", "bytes", "sorted", "get_args", "cast"}
    | {"compile", "dedent", "join", "encode", "decode", "strip", "format", "split", "items", "keys", "values", "upper", "lower"}
    | {"namedtuple", "fromkeys", "getLogger", "ip_network", "field", "create_model"}
)
"""Functions that may be called while a module is imported: they make a value and touch nothing."""

LOUD_CLASSES = frozenset(
    {"FastAPI", "Starlette", "APIRouter", "Router", "Jinja2Templates", "Client", "AsyncClient", "Thread", "Popen"}
    | {"Lock", "Event", "Semaphore", "Condition", "Queue", "CapacityLimiter", "Settings"}
)
"""Classes whose instances live or hold state; instances of others (types, marks, frozen values) may be constants."""


def test_names_say_something() -> None:
    """No module or class is called utils, helpers, common, base, manager, impl."""
    files = [module.path for module in source_modules() if EMPTY_WORDS & set(_words(module))]
    classes = [
        f"{module.path}:{node.name}"
        for module in source_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and EMPTY_CLASS_WORDS.search(node.name)
    ]
    assert not files + classes


def test_nothing_mutable_lives_at_module_level() -> None:
    found = [f"{module.path}:{line}: {what}" for module in source_modules() for line, what in _mutable_globals(module)]
    assert not found, told("make it a tuple or frozenset, or annotate it as a Mapping or Sequence:", found)


def test_importing_does_no_work() -> None:
    found = [f"{module.path}:{line}: {what}" for module in source_modules() for line, what in _work(module)]
    assert not found, told("move it into a function:", found)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_facade_lists_what_it_offers(library: str) -> None:
    """`__all__` has no repeats, and every name in it is there (ruff keeps it sorted)."""
    facade = importlib.import_module(library)
    names = list(facade.__all__)
    assert len(names) == len(set(names))
    assert not [name for name in names if not hasattr(facade, name)]


def _words(module: Module) -> Iterator[str]:
    for part in module.name.split("."):
        yield from part.split("_")


def _mutable_globals(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield node.lineno, f"global {', '.join(node.names)}"
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _is_mutable(statement.value):
            target = ast.unparse(statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0])
            annotation = ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""
            if not target.startswith("__") and not annotation.split(".")[-1].startswith(tuple(READ_ONLY)):
                yield statement.lineno, target


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).split(".")[-1] in {"dict", "list", "set", "defaultdict", "deque", "Lock", "Event"}
    return isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp)


def _work(module: Module) -> Iterator[tuple[int, str]]:
    if module.path.endswith("__main__.py"):
        return
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            yield from _loud_calls(statement.value)
        elif isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
            yield statement.lineno, ast.unparse(statement)[:60]
        elif isinstance(statement, ast.For | ast.While | ast.With | ast.Delete | ast.Assert | ast.Raise):
            yield statement.lineno, type(statement).__name__


def _loud_calls(value: ast.expr) -> Iterator[tuple[int, str]]:
    stack: list[ast.AST] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Lambda):
            continue  # runs later
        if isinstance(node, ast.Call) and not _is_quiet(ast.unparse(node.func)):
            yield node.lineno, ast.unparse(node)[:60]
        stack.extend(ast.iter_child_nodes(node))


def _is_quiet(called: str) -> bool:
    last = called.split(".")[-1]
    return last in QUIET_CALLS or (last.lstrip("_")[:1].isupper() and last not in LOUD_CLASSES)
