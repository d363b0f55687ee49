"""Resources of the platform as templates; values in double braces are filled in when they are used."""

import json
from importlib.resources import files
from typing import Any


def fill_template(name: str, values: dict[str, str]) -> Any:
    """Return a JSON template with its values filled in.

    Args:
        name: Path below this package, such as `embedded/completion.json`.
        values: What stands for each `{{name}}`; every one in the template must be given.

    Raises:
        KeyError: The template names a value that was not given.
    """
    return _filled(json.loads(files(__name__).joinpath(name).read_text(encoding="utf-8")), values)


def _filled(value: Any, values: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {_text(key, values): _filled(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, values) for inner in value]
    return _text(value, values) if isinstance(value, str) else value


def _text(text: str, values: dict[str, str]) -> str:
    head, *pieces = text.split("{{")
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        head += values[name] + rest
    return head
