"""The HTTP API for people: `docs/api.md`, made from the service's own OpenAPI description, so that it cannot say something else.

The description is made without a store and without a sandbox: routes are described, not called.
"""

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, cast

from pydantic import SecretStr

from orchestration_service.app import create_app
from orchestration_service.routes.problems import PROBLEM_TYPE, STATUS
from orchestration_service.security import Doorkeeper
from orchestration_service.settings import Settings
from workflow_schemas.tables import JsonObject, default_words, row, value_words

_NOBODY = cast(Any, None)
_EXAMPLE_INSTANCE = "00000000-0000-0000-0000-000000000000"
_ROUTE_ORDER = ("completions", "activity", "conversations", "status")


def describe_api() -> JsonObject:
    """Return the OpenAPI document of the service."""
    key = SecretStr("described, not served")
    settings = Settings.model_construct(instance_id=_EXAMPLE_INSTANCE, api_key=key)  # constructed: no environment may change the document
    doorkeeper = Doorkeeper(instance_id=_EXAMPLE_INSTANCE, api_key=key)
    app = create_app(settings=settings, doorkeeper=doorkeeper, operations=_NOBODY, board=_NOBODY, start_turn=_NOBODY, forks=_NOBODY)
    described: JsonObject = app.openapi()
    return described


def api_part(document: Mapping[str, Any]) -> str:
    """Return the made part of `docs/api.md`.

    Args:
        document: The OpenAPI document.
    """
    parts = ["## Routes", "", *_contents(document), ""]
    for method, path, operation in _operations(document):
        parts += _route(method, path, operation)
    parts += ["## Errors", "", *_errors(), ""]
    parts += ["## Models", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _model(name, schema)
    return "\n".join(parts)


def _operations(document: Mapping[str, Any]) -> list[tuple[str, str, JsonObject]]:
    found = [(method.upper(), path, operation) for path, item in document["paths"].items() for method, operation in item.items()]
    return sorted(found, key=lambda entry: (_place(entry[2]), entry[1], entry[0]))


def _place(operation: JsonObject) -> int:
    tag = next(iter(operation.get("tags", ())), "")
    return _ROUTE_ORDER.index(tag) if tag in _ROUTE_ORDER else len(_ROUTE_ORDER)


def _contents(document: Mapping[str, Any]) -> Iterator[str]:
    yield row("Request", "What for")
    yield "|---|---|"
    for method, path, operation in _operations(document):
        yield row(f"`{method} {path}`", operation["summary"])


def _route(method: str, path: str, operation: JsonObject) -> Iterator[str]:
    yield from (f"### `{method} {path}`", "", f"{operation['summary']}. {operation.get('description', '')}".strip(), "")
    if not operation.get("security"):
        yield from ("No key is asked for.", "")
    if parameters := operation.get("parameters"):
        yield from (row("Parameter", "Where", "Value", "What it is"), "|---|---|---|---|")
        for item in parameters:
            needed = "" if item.get("required") else "; may be left out"
            yield row(f"`{item['name']}`", item["in"], f"{value_words(item['schema'])}{needed}", item.get("description", ""))
        yield ""
    if body := operation.get("requestBody"):
        yield from _body(body)
    yield from (row("Answer", "Content", "When"), "|---|---|---|")
    refusals = []
    for status, answer in sorted(operation["responses"].items()):
        if PROBLEM_TYPE in answer.get("content", {}):
            refusals.append(status)
        else:
            yield row(status, " or ".join(_content(answer.get("content", {}))) or "empty", answer["description"])
    if refusals:
        yield row(", ".join(refusals), f"[Problem](#problem), `{PROBLEM_TYPE}`", "See [errors](#errors).")
    yield ""


def _body(body: JsonObject) -> Iterator[str]:
    for media, content in body["content"].items():
        words = f"Body ({'always' if body.get('required') else 'may be left out'}): {_reference(content['schema'])}, `{media}`."
        yield from (f"{words} {body.get('description', '')}".strip(), "")
        if example := content.get("example"):
            yield from ("```json", json.dumps(example, indent=2), "```", "")


def _content(content: JsonObject) -> Iterator[str]:
    for media, shape in content.items():
        yield f"{_reference(shape['schema'])}, `{media}`" if "$ref" in shape.get("schema", {}) else f"`{media}`"


def _errors() -> Iterator[str]:
    """Yield when each error status is answered, in the words of the errors themselves."""
    yield from (row("Status", "When"), "|---|---|")
    reasons: dict[HTTPStatus, list[str]] = {}
    for kind, status in STATUS.items():
        reasons.setdefault(status, []).append(" ".join(str(kind.__doc__).split("\n\n")[0].split()))
    for status in sorted(reasons):
        yield row(f"{status.value} {status.phrase}", " ".join(reasons[status]))


def _model(name: str, schema: JsonObject) -> Iterator[str]:
    yield from (f"### {name}", "", " ".join(schema.get("description", "").split()), "")
    if not (properties := schema.get("properties")):
        return
    yield from (row("Field", "Value", "Default", "What it is"), "|---|---|---|---|")
    for field, item in properties.items():
        default = "always given" if field in schema.get("required", ()) else default_words(item)
        yield row(f"`{field}`", _reference(item), default, " ".join(item.get("description", "").replace("``", "`").split()))
    yield ""


def _reference(item: JsonObject) -> str:
    """Say what may stand there, with links to the models."""
    if name := str(item.get("$ref", "")).rpartition("/")[2]:
        return f"[{name}](#{name.lower()})"
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in item:
            return " or ".join(dict.fromkeys(_reference(part) for part in item[choice] if part.get("type") != "null"))
    if item.get("type") == "array" and item.get("items", {}).keys() & {"$ref", "anyOf", "oneOf"}:
        return f"list of {_reference(item['items'])}"
    if isinstance(values := item.get("additionalProperties"), dict) and values:
        return f"object of {_reference(values)} by name"
    return value_words(item)
