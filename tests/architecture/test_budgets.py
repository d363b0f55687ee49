"""Size and shape budgets. A number that must grow grows here, in the open, with a reason beside it."""

import ast
from collections.abc import Iterator, Mapping

from tests.architecture.source import LIBRARIES, Function, Module, source_modules, test_modules, told

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_LONG_FUNCTION_SHARE = 0.02
MAX_BROAD_HANDLERS = 3
MIN_PUBLIC_DOCSTRING_SHARE = 0.90
MAX_MOCKS_PER_HUNDRED_TESTS = 10

LONG_FUNCTIONS: Mapping[str, str] = {}
"""`path:function` of each function over the limit, and why it reads better in one piece."""


def test_no_file_is_too_long() -> None:
    sizes = {module.path: module.text.count("\n") for module in source_modules()}
    assert not {path: lines for path, lines in sizes.items() if lines > MAX_FILE_LINES}


def test_long_functions_are_few_and_each_has_a_reason() -> None:
    lengths = {f"{module.path}:{name}": _length(function) for module in source_modules() for name, function in module.functions()}
    long = {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES}
    unexplained = [f"{name} has {lines}" for name, lines in long.items() if name not in LONG_FUNCTIONS]
    assert not unexplained, told("split, or give a reason:", unexplained)
    assert set(LONG_FUNCTIONS) <= set(long), "these became short: take them off the list"
    assert len(long) <= len(lengths) * MAX_LONG_FUNCTION_SHARE


def test_broad_handlers_that_swallow_are_rare() -> None:
    """An `except Exception` re-raises; the very few that may not are counted."""
    found = [f"{module.path}:{line}" for module in source_modules() for line in _swallowing_handlers(module.tree)]
    assert len(found) <= MAX_BROAD_HANDLERS, told("re-raise, or narrow:", found)


def test_the_libraries_describe_what_they_offer() -> None:
    offered = {
        name: documented
        for module in source_modules()
        if module.name.split(".")[0] in LIBRARIES
        for name, documented in _public_names(module)
    }
    silent = [name for name, documented in offered.items() if not documented]
    assert len(silent) <= len(offered) * (1 - MIN_PUBLIC_DOCSTRING_SHARE), told("describe:", silent)


def test_mocks_are_rare() -> None:
    """Fakes stand at the edges; patching our own code hides what it does."""
    tests = sum(name.startswith("test_") for module in test_modules() for name, _ in module.functions())
    mocks = [f"{module.path}:{line}" for module in test_modules() for line in _mock_calls(module.tree)]
    assert len(mocks) * 100 <= MAX_MOCKS_PER_HUNDRED_TESTS * tests, told("use a real part:", mocks)


def _length(function: Function) -> int:
    """Lines from `def` to the end, without the docstring and without functions nested inside."""
    own = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        own -= (first.end_lineno or first.lineno) - first.lineno + 1
    return own


def _swallowing_handlers(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type):
            if not any(isinstance(inner, ast.Raise) for statement in node.body for inner in ast.walk(statement)):
                yield node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress") and any(map(_is_broad, node.args)):
            yield node.lineno


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return caught is None or ast.unparse(caught) in {"Exception", "BaseException"}


def _public_names(module: Module) -> Iterator[tuple[str, bool]]:
    if any(part.startswith("_") for part in module.name.split(".")):
        return
    yield module.name, ast.get_docstring(module.tree) is not None
    yield from _public_definitions(module.tree, module.name)


def _public_definitions(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, bool]]:
    for child in node.body:
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            yield f"{prefix}.{child.name}", ast.get_docstring(child) is not None
            if isinstance(child, ast.ClassDef):
                yield from _public_definitions(child, f"{prefix}.{child.name}")


def _mock_calls(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.split(".")[-1] in {"Mock", "MagicMock", "AsyncMock", "patch"} or called.endswith(
                ("patch.object", "patch.dict", "monkeypatch.setattr", "monkeypatch.setitem")
            ):
                yield node.lineno
