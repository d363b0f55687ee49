"""What is asked often: the poll of an operation, and the service's own state."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from orchestration_service.errors import ServiceError
from orchestration_service.operations import StatusBoard
from orchestration_service.remarks import Remarks
from orchestration_service.routes.openapi import STATUS_PATH
from orchestration_service.routes.problems import documented, refuse
from orchestration_service.security import Doorkeeper
from orchestration_service.settings import Settings
from orchestration_service.version import service_version
from workflow_schemas.platform import ServiceStatusInfo, to_wire


def status_route(board: StatusBoard, doorkeeper: Doorkeeper) -> Route:
    """Return the route of the poll, to be put before all others."""
    return Route(STATUS_PATH, _Poll(board, doorkeeper), methods=["GET"])


class _Poll:
    """The poll as a bare ASGI application: two sends of ready bytes, nothing parsed, nothing built."""

    def __init__(self, board: StatusBoard, doorkeeper: Doorkeeper) -> None:
        self._board = board
        self._doorkeeper = doorkeeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = scope["path_params"]
        try:
            caller = self._doorkeeper.admit(parameters["instance_id"], Headers(scope=scope))
            operation_id = parameters["operation_id"]
            body = self._board.glance(operation_id, caller.upn) or await self._board.status(operation_id, caller.upn)
        except ServiceError as error:
            await refuse(error)(scope, receive, send)
            return
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def router(settings: Settings, *, doorkeeper: Doorkeeper, remarks: Remarks) -> APIRouter:
    """Return the routes probes ask; they need no key, since they say nothing a caller could not guess."""
    routes = APIRouter(tags=["status"])
    state = ServiceStatusInfo(instance_name=settings.instance_name, version=service_version())

    @routes.get(
        "/status",
        responses={200: {"model": ServiceStatusInfo, "description": "The service is up."}},
        response_class=Response,
        summary="State of the service",
    )
    async def service_status() -> Response:
        """Say that the service is up."""
        return Response(to_wire(state), media_type="application/json")

    @routes.get(
        "/instances/{instance_id}/status",
        responses={200: {"model": ServiceStatusInfo, "description": "The service is up."}, **documented(403)},
        response_class=Response,
        summary="State of the service for an instance",
    )
    async def instance_status(instance_id: Annotated[str, Path(description="Id of the platform instance.")]) -> Response:
        """Say that the service is up and serves this instance; and in `message` what whoever looks after it should know."""
        doorkeeper.check_instance(instance_id)
        answer = state.model_copy(update={"instance_id": settings.instance_id, "message": remarks.text})
        return Response(to_wire(answer), media_type="application/json")

    return routes
