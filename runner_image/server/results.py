"""The values an execution gives back: the plain names of its last statement, each as JSON text.

The stock container has this habit and its Code Interpreter tool relies on it: `results` maps a name to JSON inside a
string, a DataFrame becomes a CSV file and a summary, and whatever cannot be written as JSON is left out. Here the output
says so, since an answer without it looks as if nothing had been computed.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plain import is_table, to_json

MAX_RESULT_CHARS = 16 * 1024 * 1024
_PREVIEW_ROWS = 10
_HINT_CHARS = 200
# what libraries raise when they are asked for something they cannot do; anything else is the code's own failure
_UNWRITABLE = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError, OSError, ImportError, MemoryError)
_NOTE = "The table is complete in the CSV file beside it; this preview shows its first rows."


def result_names(tree: ast.Module) -> tuple[str, ...]:
    """Find the plain names that the last statement shows or assigns.

    Args:
        tree: The parsed code.
    """
    if not tree.body:
        return ()
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        return _plain_names(last.value)
    if isinstance(last, ast.Assign):
        return tuple(name for target in last.targets for name in _plain_names(target))
    if isinstance(last, ast.AnnAssign) and last.value is not None:
        return _plain_names(last.target)
    return ()


def _plain_names(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Tuple | ast.List) and all(isinstance(item, ast.Name) for item in node.elts):
        return tuple(item.id for item in node.elts if isinstance(item, ast.Name))
    return ()


@dataclass(frozen=True)
class Encoded:
    """What an execution gives back besides its output."""

    results: dict[str, str]
    """JSON text by name."""

    hints: list[str]
    """One line for each name that is left out: what it is, and what to do instead."""


def encode_results(names: tuple[str, ...], namespace: Mapping[str, object], directory: Path) -> Encoded:
    """Write each named value as JSON text; what cannot be written is left out, with a hint.

    Args:
        names: What `result_names` found.
        namespace: The execution's variables.
        directory: Where the CSV file of a table goes.
    """
    encoded = Encoded({}, [])
    room = MAX_RESULT_CHARS
    for name in dict.fromkeys(name for name in names if name in namespace):
        value = namespace[name]
        try:
            text = json.dumps(_table_summary(name, value, directory)) if is_table(value) else to_json(value)
        except _UNWRITABLE as error:
            encoded.hints.append(_hint(name, value, f"cannot be written as JSON ({str(error)[:_HINT_CHARS]})"))
            continue
        if len(text) > room:
            encoded.hints.append(_hint(name, value, f"is longer than fits in an answer ({len(text)} characters)"))
            continue
        encoded.results[name] = text
        room -= len(text)
    return encoded


def _hint(name: str, value: object, reason: str) -> str:
    kind = type(value).__name__
    remedy = (
        f"save it with {name}.savefig('{name}.png')" if hasattr(value, "savefig") else "print what you need of it, or write it to a file"
    )
    return f"[not shown: {name!r}, a value of type {kind!r}, {reason}; {remedy}]".replace("\n", " ")


def _table_summary(name: str, table: Any, directory: Path) -> dict[str, object]:
    import time

    path = directory / f"{name}_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}.csv"
    table.to_csv(path)
    return {"type": "dataframe", "details": f"{_NOTE} File: {path.name}", "preview": _preview(table.head(_PREVIEW_ROWS))}


def _preview(head: Any) -> object:
    try:
        rows = json.loads(head.to_json(orient="table"))["data"]
    except (ValueError, RuntimeError, KeyError):  # columns or index of several levels, or with equal names
        return head.to_csv()
    return [{"" if key == "index" else key: cell for key, cell in row.items()} for row in rows]
