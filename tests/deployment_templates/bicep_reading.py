"""Reads Bicep files, and holds their resources against the models of Azure's own client library.

There is no Bicep compiler in any package registry; a parser is, and the library's models are the documented shape of each resource: which
fields there are, of what type, and which are read-only. An expression is checked as far as its branches are written out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.mgmt.appcontainers import models
from pycep import BicepParser

ENUMERATIONS: Mapping[tuple[str, str], str] = {
    ("SessionPool", "poolManagementType"): "PoolManagementType",
    ("SessionPool", "containerType"): "ContainerType",
    ("LifecycleConfiguration", "lifecycleType"): "LifecycleType",
    ("ManagedIdentitySetting", "lifecycle"): "IdentitySettingsLifeCycle",
    ("ManagedServiceIdentity", "type"): "ManagedServiceIdentityType",
    ("Configuration", "activeRevisionsMode"): "ActiveRevisionsMode",
    ("Ingress", "transport"): "IngressTransportMethod",
    ("ContainerAppProbe", "type"): "Type",
    ("Volume", "storageType"): "StorageType",
}
"""Fields of a model whose text is one of an enumeration; the models themselves say only that it is text."""

_EXPRESSIONS = {"function", "operator", "loop_type"}


@dataclass(frozen=True)
class Template:
    """A Bicep file."""

    name: str
    """Of the file, without its ending."""
    text: str
    """As written."""
    tree: Mapping[str, Any]
    """As parsed."""

    def part(self, name: str) -> Mapping[str, Any]:
        """One of the tree's sections; empty if the file has none."""
        found: Mapping[str, Any] = self.tree.get(name, {})
        return found

    @property
    def names(self) -> set[str]:
        """What expressions may name."""
        return {name for part in ("parameters", "variables", "resources", "modules") for name in self.part(part)}


def read(path: Path) -> Template:
    """Parse a file."""
    return Template(path.stem, path.read_text(encoding="utf-8"), BicepParser().parse(file_path=path))


def faults(model: str, value: Any, template: Template, path: str = "") -> Iterator[str]:
    """Say what does not fit a model.

    Args:
        model: Name of the library's model.
        value: What the file has in its place.
        template: The file.
        path: Where that is.
    """
    kind = getattr(models, model)
    for branch in _branches(value):
        if isinstance(branch, Mapping):
            yield from _object(kind, branch, template, path, prefix="")
        elif branch != "null" and branch is not None:
            yield f"{path}: {branch!r} is no {model}"


def _object(kind: Any, value: Mapping[str, Any], template: Template, path: str, prefix: str) -> Iterator[str]:
    fields = {field["key"]: (name, field["type"]) for name, field in kind._attribute_map.items()}
    for key, content in value.items():
        full, where = prefix + key, f"{path}/{key}"
        if any(field.startswith(f"{full}.") for field in fields):
            yield from _object(kind, content, template, where, f"{full}.")
        elif full not in fields:
            yield f"{where}: {kind.__name__} has no such field"
        elif kind._validation.get(fields[full][0], {}).get("readonly") and full not in {"name"}:
            yield f"{where}: is read-only"
        else:
            enumeration = ENUMERATIONS.get((kind.__name__, key), "")
            yield from _field(fields[full][1], content, template, where, enumeration)
    required = {fields_key for name, fields_key in _keys(kind) if kind._validation.get(name, {}).get("required")}
    if not prefix:
        yield from (f"{path}: {name} is missing" for name in sorted(required - value.keys()) if "." not in name)


def _keys(kind: Any) -> Iterator[tuple[str, str]]:
    for name, field in kind._attribute_map.items():
        yield name, field["key"]


def _field(wanted: str, value: Any, template: Template, path: str, enumeration: str) -> Iterator[str]:
    if wanted.startswith("["):
        for branch in _branches(value):
            items = branch if isinstance(branch, list) else [] if _is_expression(branch) or branch in template.names else [branch]
            for number, item in enumerate(items):
                yield from _field(wanted[1:-1], item, template, f"{path}[{number}]", "")
    elif wanted.startswith("{"):
        if not isinstance(value, Mapping) and value not in template.names:
            yield f"{path}: {value!r} is no object"
    elif hasattr(models, wanted):
        yield from faults(wanted, value, template, path)
    else:
        yield from (fault for branch in _branches(value) for fault in _plain(wanted, branch, template, path, enumeration))


def _plain(wanted: str, value: Any, template: Template, path: str, enumeration: str) -> Iterator[str]:
    if _is_expression(value) or (isinstance(value, str) and value in template.names):
        return
    types: Mapping[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
    if not isinstance(value, types[wanted]) or (wanted == "int" and isinstance(value, bool)):
        yield f"{path}: {value!r} is no {wanted}"
    elif enumeration and value not in {one.value for one in getattr(models, enumeration)}:
        yield f"{path}: {value!r} is none of {enumeration}"


def _branches(value: Any) -> Iterator[Any]:
    """What an expression may come to, where that is written out."""
    if isinstance(value, Mapping) and value.get("operator", {}).get("type") == "conditional":
        operands = value["operator"]["operands"]
        yield from _branches(operands["true_value"])
        yield from _branches(operands["false_value"])
    elif not _is_expression(value):
        yield value


def _is_expression(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(_EXPRESSIONS & value.keys())
