"""A profile to begin with: every key with its meaning and default, made from the models so that it is never behind them."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from deployment_templates.profile import Profile

WIDTH = 110

SAMPLES: Mapping[str, Any] = {
    "instance_id": "00000000-0000-0000-0000-000000000000",
    "service.url": "http://claude-code-api.NAMESPACE.svc.cluster.local",
    "models.sonnet": "claude-sonnet-4-5",
    "models.haiku": "claude-haiku-4-5",
    "roles.users": ["00000000-0000-0000-0000-000000000000"],
}
"""What an installation cannot do without, with values to be replaced."""


def example() -> str:
    """Return a profile as TOML. Lines without a hash have to be looked at; the others show their defaults."""
    lines = ["# One installation. docs/templates.md says what becomes of it; there are no secrets in it.", ""]
    tables = []
    for name, field in Profile.model_fields.items():
        if _is_table(field):
            tables.append((name, field))
        else:
            lines += _entry(name, name, field)
    lines.append("")
    for name, field in tables:
        model = field.annotation
        lines += _comment(field.description or "")
        lines.append(f"[{name}]")
        if isinstance(model, type) and issubclass(model, BaseModel):
            for key, inner in model.model_fields.items():
                lines += _entry(f"{name}.{key}", key, inner)
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _is_table(field: FieldInfo) -> bool:
    kind = field.annotation
    return get_origin(kind) is Mapping or (isinstance(kind, type) and issubclass(kind, BaseModel))


def _entry(path: str, name: str, field: FieldInfo) -> Iterator[str]:
    meaning = field.description or ""
    choices = [choice for choice in _choices(field.annotation) if choice not in meaning]
    yield from _comment(f"{meaning} One of: {', '.join(_choices(field.annotation))}." if choices else meaning)
    if path in SAMPLES:
        yield f"{name} = {json.dumps(SAMPLES[path])}"
        return
    default = field.get_default(call_default_factory=True, validated_data={})
    yield f"# {name} =" if default in (None, PydanticUndefined) else f"# {name} = {json.dumps(default)}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text.replace("`", "'"), WIDTH)]


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    if get_origin(annotation) in (UnionType, Union, tuple):
        return next((found for inner in get_args(annotation) if (found := _choices(inner))), [])
    return []
