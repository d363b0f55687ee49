"""What the routes take, said in OpenAPI; the handlers read requests themselves, so the framework cannot know."""

import re
from typing import Any

from pydantic import BaseModel

from context_client.size import SIZE_HEADER


def describe(path: str, body: type[BaseModel] | None, api_key_header: str) -> dict[str, Any]:
    """Describe a route's parameters and body.

    Args:
        path: The route, with its parameters in braces.
        body: Model of the JSON body, if it has one.
        api_key_header: Name of the header for the key.
    """
    parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", path)]
    if not path.endswith("/status"):
        parameters += [_parameter(api_key_header, "header"), _parameter("X-USER-IDENTITY", "header")]
    if path.endswith("/codeSessions"):
        parameters.append({"name": SIZE_HEADER, "in": "header", "required": False, "schema": {"type": "string"}})
    described: dict[str, Any] = {"parameters": parameters}
    if body is not None:
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        definitions = schema.pop("$defs", {})
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _inlined(schema, definitions)}},
        }
    elif path.endswith("/files"):
        form = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
        parameters.append({"name": "agentName", "in": "query", "required": False, "schema": {"type": "string"}})
    return described


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": {"type": "string", "minLength": 1}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_inlined(value, definitions) for value in schema]
    return schema
