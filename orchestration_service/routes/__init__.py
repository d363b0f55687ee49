"""The HTTP surface: completions, their status, their activity, conversations, and what probes ask.

`build_router` gives the routes that FastAPI describes and serves; `status_route` is the poll, kept out of FastAPI's
stack because it is asked hundreds of times a second.
"""

from __future__ import annotations

from fastapi import APIRouter

from orchestration_service.forking import Forks
from orchestration_service.operations import OperationStore, StartTurn, StatusBoard
from orchestration_service.remarks import Remarks
from orchestration_service.routes import activity, completions, conversations, status
from orchestration_service.routes.status import status_route
from orchestration_service.security import Doorkeeper
from orchestration_service.settings import Settings

__all__ = ["build_router", "status_route"]


def build_router(
    *,
    settings: Settings,
    operations: OperationStore,
    board: StatusBoard,
    doorkeeper: Doorkeeper,
    start_turn: StartTurn,
    forks: Forks,
    remarks: Remarks,
) -> APIRouter:
    """Return all routes except the poll."""
    router = APIRouter()
    accept = completions.Acceptance(settings=settings, operations=operations, board=board, doorkeeper=doorkeeper, start_turn=start_turn)
    router.include_router(completions.router(accept, board=board, settings=settings))
    router.include_router(activity.router(operations, board=board, doorkeeper=doorkeeper, keep_alive_seconds=settings.keep_alive_seconds))
    router.include_router(conversations.router(operations, doorkeeper=doorkeeper, forks=forks))
    router.include_router(status.router(settings, doorkeeper=doorkeeper, remarks=remarks))
    return router
