"""The values an execution gives back: the plain names of its last statement, each as JSON text.

The stock container has this habit and its Code Interpreter tool relies on it: `results` maps a name to JSON inside a
string, a DataFrame becomes a CSV file and a summary, and whatever cannot be written as JSON is left out.
"""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_RESULT_CHARS = 16 * 1024 * 1024
_PREVIEW_ROWS = 10
_UNWRITABLE = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError, OSError)
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


def encode_results(names: tuple[str, ...], namespace: Mapping[str, object], directory: Path) -> dict[str, str]:
    """Write each named value as JSON text; what cannot be written is left out.

    Args:
        names: What `result_names` found.
        namespace: The execution's variables.
        directory: Where the CSV file of a table goes.
    """
    results: dict[str, str] = {}
    room = MAX_RESULT_CHARS
    for name in names:
        try:
            text = _encode(name, namespace[name], directory)
        except _UNWRITABLE:
            continue
        if len(text) <= room:
            results[name] = text
            room -= len(text)
    return results


def _encode(name: str, value: object, directory: Path) -> str:
    kind = type(value)
    if kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas":
        value = _table_summary(name, value, directory)
    return json.dumps(value, default=_plain, allow_nan=False)


def _table_summary(name: str, table: Any, directory: Path) -> dict[str, object]:
    import time

    path = directory / f"{name}_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}.csv"
    table.to_csv(path)
    preview = json.loads(table.head(_PREVIEW_ROWS).to_json(orient="table"))["data"]
    rows = [{"" if key == "index" else key: cell for key, cell in row.items()} for row in preview]
    return {"type": "dataframe", "details": f"{_NOTE} File: {path.name}", "preview": rows}


def _plain(value: Any) -> object:
    """Turn the common values that JSON does not know into ones that it does."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    for method in ("isoformat", "tolist", "to_dict"):  # dates; numpy arrays and scalars; pandas Series
        if hasattr(value, method):
            return getattr(value, method)()
    if type(value).__module__ in {"decimal", "uuid", "pathlib", "_decimal"}:
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
