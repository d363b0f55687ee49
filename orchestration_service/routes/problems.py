"""How errors look from outside: RFC 9457 problem documents whose ``detail`` says what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from orchestration_service import errors
from orchestration_service.errors import ServiceError

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"

STATUS: Mapping[type[ServiceError], HTTPStatus] = {
    errors.KeyRefused: HTTPStatus.UNAUTHORIZED,
    errors.InstanceRefused: HTTPStatus.FORBIDDEN,
    errors.IdentityRefused: HTTPStatus.BAD_REQUEST,
    errors.RequestInvalid: HTTPStatus.BAD_REQUEST,
    errors.RequestTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.OperationConflict: HTTPStatus.CONFLICT,
    errors.OperationUnknown: HTTPStatus.NOT_FOUND,
    errors.ConversationUnknown: HTTPStatus.NOT_FOUND,
    errors.ConversationBusy: HTTPStatus.CONFLICT,
    errors.ConversationChanged: HTTPStatus.CONFLICT,
    errors.TurnUnknown: HTTPStatus.NOT_FOUND,
    errors.ForkRefused: HTTPStatus.CONFLICT,
    errors.SandboxUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.StoreBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreUnusable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Which status each error is answered with; every leaf of the first two branches is here."""


class Problem(BaseModel):
    """A problem document."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str = "about:blank"
    """Always ``about:blank``: the status says the kind, ``detail`` the rest."""
    title: str
    """The status in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What happened and what to do next."""


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Return a problem document as a response."""
    document = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return Response(json.dumps(document), status, headers, PROBLEM_TYPE)  # ASCII, so hostile text cannot break it


def refuse(error: ServiceError) -> Response:
    """Return the answer to an error of ours; failures of the store are logged, mistakes of callers are not."""
    status = STATUS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    headers: dict[str, str] = {}
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("Answered %d: %s", status, error)
        headers["Retry-After"] = "5"
    if isinstance(error, errors.KeyRefused):
        headers["WWW-Authenticate"] = "ApiKey"
    if isinstance(error, errors.RequestTooLarge):
        headers["Connection"] = "close"  # the rest of the body is not read
    return problem_response(status, str(error), headers)


def describe_invalid(error: ValidationError, what: str) -> str:
    """Say in one sentence per fault what is wrong with a body, without repeating its content."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    said = [f"{'.'.join(str(part) for part in fault['loc']) or 'the body'}: {fault['msg']}" for fault in faults[:5]]
    more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
    return f"{what} cannot be read. {'; '.join(said)}{more}."


def install(app: FastAPI) -> None:
    """Make an app answer every error as a problem document."""

    async def of_ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return refuse(error)

    async def of_framework(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem_response(error.status_code, str(error.detail), dict(error.headers or {}))

    async def of_parameters(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        said = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
        return problem_response(400, f"A parameter cannot be read. {said}.")

    async def of_anything(_: Request, __: Exception) -> Response:
        return problem_response(500, "The service failed in a way nobody foresaw. Its log says more; try again later.")

    app.add_exception_handler(ServiceError, of_ours)
    app.add_exception_handler(HTTPException, of_framework)
    app.add_exception_handler(RequestValidationError, of_parameters)
    app.add_exception_handler(Exception, of_anything)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of these refusals."""
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {status: {"description": HTTPStatus(status).phrase, "content": {PROBLEM_TYPE: reference}} for status in statuses}
