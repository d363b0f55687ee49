"""The JSON Schema of every public model, with all that pydantic leaves out of it: dialect, identifier, titles, sentences."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

import workflow_schemas
from workflow_schemas.platform import ContentItem
from workflow_schemas.platform_request import Incoming
from workflow_schemas.platform_response import Outgoing

JsonObject = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The draft the schemas are written in."""

SUFFIX = ".schema.json"
"""End of the name of a schema's file; the whole name is its identifier."""


def public_models() -> dict[str, type[BaseModel]]:
    """Return the models of the façade by their names, sorted."""
    found = {name: getattr(workflow_schemas, name) for name in sorted(workflow_schemas.__all__)}
    return {name: value for name, value in found.items() if isinstance(value, type) and issubclass(value, BaseModel)}


def schemas() -> dict[str, JsonObject]:
    """Return the schema of every public model and of the two unions, by name, sorted."""
    made = {name: _model_schema(name, model) for name, model in public_models().items()}
    made["Event"] = _finished("Event", workflow_schemas.event_adapter.json_schema(), "Any activity event; `type` tells which.")
    item: TypeAdapter[object] = TypeAdapter(ContentItem)
    made["ContentItem"] = _finished("ContentItem", item.json_schema(mode="serialization"), "What an answer may consist of.")
    return dict(sorted(made.items()))


def _model_schema(name: str, model: type[BaseModel]) -> JsonObject:
    # what is computed belongs to what we write; to what we read, it does not
    mode: JsonSchemaMode = "serialization" if issubclass(model, Outgoing) else "validation"
    return _finished(name, model.model_json_schema(mode=mode), "")


def _finished(name: str, schema: JsonObject, description: str) -> JsonObject:
    """Put on top what names the schema, and fill in what pydantic leaves out of it."""
    tolerant = {kind.__name__ for kind in _below(Incoming)}
    for owner, part in _objects(name, schema):
        _describe(part)
        if owner in tolerant:
            _accept_null(part)
    head = {"$schema": DIALECT, "$id": f"{name}{SUFFIX}", "title": name, "description": description or schema.get("description", "")}
    head["description"] = " ".join(str(head["description"]).split())
    return {**head, **{key: value for key, value in schema.items() if key not in head}}


def _objects(name: str, schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield each object of a schema that has properties, with the name of its model."""
    for owner, part in ((name, schema), *schema.get("$defs", {}).items()):
        if "properties" in part:
            yield owner, part


def _describe(part: JsonObject) -> None:
    """Give each property a title (a reference has none) and each fixed word a sentence."""
    for name, item in part["properties"].items():
        item.setdefault("title", name.replace("_", " ").title())
        if "const" in item:
            item.setdefault("description", f"Always `{item['const']}`: it tells this kind from the others.")
            part["required"] = [name, *(word for word in part.get("required", ()) if word != name)]
        if item.get("readOnly") and name in part.get("required", ()):
            part["required"].remove(name)  # what is computed, another writer may leave out
        if "description" in item:
            item["description"] = " ".join(item["description"].split())


def _accept_null(part: JsonObject) -> None:
    """Say that null stands for an absent value, as in all that the platform sends."""
    for name, item in part["properties"].items():
        if name in part.get("required", ()):
            continue
        about = {key: item.pop(key) for key in ("title", "description", "default") if key in item}
        if not any(choice.get("type") == "null" for choice in item.get("anyOf", ())):
            item = {"anyOf": [*(item.get("anyOf") or [item]), {"type": "null"}]}
        part["properties"][name] = {**about, **item}


def _below(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)
