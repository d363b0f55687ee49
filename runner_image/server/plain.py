"""Writes common values of data code as JSON, known by what they can do: neither numpy nor pandas has to be installed.

The stock container's encoder is the measure. Where it wrote what is no JSON (`NaN`) or lost digits, this one does better.
"""

import json
import math
from collections import deque
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

_MAX_DEPTH = 100
_AS_TEXT = frozenset({"Path", "PosixPath", "PurePosixPath", "UUID", "timedelta", "Period", "Interval"})
_MISSING = frozenset({"NaTType", "NAType"})


def to_json(value: object) -> str:
    """Write a value as JSON text.

    Args:
        value: Anything; numbers that are none become null, keys become text.

    Raises:
        TypeError: Something in it has no JSON form.
        ValueError: It is nested without an end.
    """
    try:
        return json.dumps(value, default=_plain, allow_nan=False)
    except (TypeError, ValueError):  # NaN, or keys that are no text: walk the whole
        return json.dumps(_walked(value, 0), allow_nan=False)


def is_table(value: object) -> bool:
    """Say whether a value is a pandas DataFrame."""
    return type(value).__name__ == "DataFrame" and _package(value) == "pandas"


def _walked(value: Any, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(name): _walked(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walked(item, depth + 1) for item in value]
    return _walked(_plain(value), depth + 1)


def _key(name: Any) -> str:
    if isinstance(name, str):
        return name
    if name is None or isinstance(name, bool | int | float):
        return json.dumps(name)
    if hasattr(name, "isoformat"):
        return str(name.isoformat())
    return str(name)


def _plain(value: Any) -> object:
    """Turn the common values that JSON does not know into ones that it does, or that this function knows.

    Raises:
        TypeError: It knows no form for it.
    """
    if isinstance(value, set | frozenset):
        return _in_order(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, range | deque | KeysView | ValuesView | ItemsView):
        return list(value)
    kind, package = type(value).__name__, _package(value)
    if kind == "Decimal":
        return _number(value)
    if kind in _MISSING and package == "pandas":
        return None
    if is_table(value):
        return value.to_dict(orient="records")
    if not isinstance(value, type):
        for method in ("isoformat", "to_dict", "tolist"):  # dates; a Series, which is a list too; numpy arrays and scalars, an index
            if hasattr(value, method):
                return getattr(value, method)()
        if kind in _AS_TEXT or (package == "numpy" and kind.lower().endswith("dtype")):
            return str(value)
    raise TypeError(f"{kind} has no form in JSON")


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _in_order(values: set[Any] | frozenset[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def _number(value: Any) -> float | str | None:
    """Return a Decimal as a number where that says the same, as the stock container does, and as text where digits would be lost."""
    if not value.is_finite():
        return None
    number = float(value)
    return number if math.isfinite(number) and type(value)(repr(number)) == value else str(value)
