"""Reads the project's own source as syntax trees, so that the budgets can be checked without importing anything."""

import ast
import functools
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("context_client", "workflow_schemas")
PACKAGES = (*LIBRARIES, "deployment_templates", "orchestration_service", "runner_image")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file."""

    path: str
    """Relative to the checkout, with forward slashes."""

    name: str
    """As imported."""

    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Every function with its dotted name inside the module, nested ones too."""
        yield from _functions(self.tree, "")


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
        inner = f"{prefix}{child.name}." if isinstance(child, Function | ast.ClassDef) else prefix
        yield from _functions(child, inner)


def read_module(path: Path) -> Module:
    """Parse one file of the checkout."""
    relative = path.relative_to(ROOT)
    parts = relative.with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(relative.as_posix(), name, text, ast.parse(text, filename=str(relative)))


@functools.cache
def source_modules() -> tuple[Module, ...]:
    """Every Python file of the packages."""
    return tuple(read_module(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))


@functools.cache
def test_modules() -> tuple[Module, ...]:
    """Every Python file under tests/."""
    return tuple(read_module(path) for path in sorted((ROOT / "tests").rglob("*.py")))


test_modules.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it by its name


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Every file git tracks that is there to read."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(path for name in listing.split("\0") if name and (path := ROOT / name).is_file())


def imported_names(module: Module, *, with_type_checking: bool = False) -> Iterator[str]:
    """Every dotted name a module imports, relative ones resolved; `from a import b` yields `a.b`."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node in _walk(module.tree, with_type_checking=with_type_checking):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _walk(node: ast.AST, *, with_type_checking: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and not with_type_checking and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _walk(child, with_type_checking=with_type_checking)


def told(advice: str, found: Iterable[str]) -> str:
    """A message that shows every place, where pytest would shorten the list."""
    return "\n  ".join([advice, *found])
