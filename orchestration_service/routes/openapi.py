"""The parts of the OpenAPI description that FastAPI cannot see: headers, the tolerant body, the poll."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from orchestration_service.routes.bodies import CONVERSATION_LIMIT, OPERATION_ID_PATTERN
from orchestration_service.routes.problems import Problem, documented
from orchestration_service.security import API_KEY_HEADER, IDENTITY_HEADER
from workflow_schemas.platform import CompletionRequest

STATUS_PATH = "/instances/{instance_id}/async-completions/{operation_id}/status"

IDENTITY_PARAMETER: Mapping[str, Any] = {
    "name": IDENTITY_HEADER,
    "in": "header",
    "required": True,
    "description": "The user, as JSON on one line with at least `upn`.",
    "schema": {"type": "string"},
    "example": '{"name": "Ann", "upn": "ann@contoso.com", "group_ids": []}',
}

EVENT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {
        "id": {"type": "string", "description": "Its number in the log; `end` has none."},
        "event": {"type": "string", "description": "Its type, for example `text`, `tool_start`, `done`; `end` is last."},
        "data": {"type": "string", "description": "The event as JSON."},
        "retry": {"type": "integer", "description": "Milliseconds after which to reconnect."},
    },
}

COMPLETION_BODY: Mapping[str, Any] = {
    "required": True,
    "description": "The platform's completion request. Unknown fields are ignored, a null counts as absent.",
    "content": {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/CompletionRequest"},
            "example": {
                "user_prompt": "Fix the failing test.",
                "agent": {"type": "generic-agent", "name": "claude-code", "workflow": {"type": "external-agent-workflow"}},
                "objects": {},
            },
        }
    },
}


def install(app: FastAPI) -> None:
    """Give an app a complete OpenAPI description, made on first demand."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's documented way to extend the description


def _described(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes, summary=app.summary)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for model in (CompletionRequest, Problem):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="validation")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    schemas["CompletionRequest"]["properties"]["operation_id"]["pattern"] = f"^({OPERATION_ID_PATTERN})?$"
    schemas["CompletionRequest"]["properties"]["session_id"]["maxLength"] = CONVERSATION_LIMIT
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # FastAPI's word for what we answer with a problem and 400
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    components["securitySchemes"] = {"ApiKey": {"type": "apiKey", "in": "header", "name": API_KEY_HEADER}}
    document["paths"][STATUS_PATH] = {"get": _poll()}
    return document


def _poll() -> dict[str, Any]:
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/LongRunningOperation"}}}
    refusals = {str(status): refusal for status, refusal in documented(400, 401, 403, 404, 503, 507).items()}
    return {
        "tags": ["completions"],
        "summary": "Poll a completion",
        "operationId": "poll_completion",
        "description": "Answers 200 as long as the operation is known, also when it has failed.",
        "parameters": [
            _path_parameter("instance_id", "Id of the platform instance."),
            _path_parameter("operation_id", "Id of the operation."),
            IDENTITY_PARAMETER,
        ],
        "security": [{"ApiKey": []}],
        "responses": {"200": {"description": "The operation as it stands.", "content": answer}, **refusals},
    }


def _path_parameter(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}
