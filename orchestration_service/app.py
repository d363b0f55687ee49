"""The web application: routes in front of an operation store, a board and a pipeline.

Who opens the store and the board, and what a turn does, is decided elsewhere; here they only meet HTTP.
"""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from orchestration_service.forking import Forks
from orchestration_service.operations import OperationStore, StartTurn, StatusBoard
from orchestration_service.remarks import Remarks
from orchestration_service.routes import build_router, openapi, problems, status_route
from orchestration_service.security import Doorkeeper
from orchestration_service.settings import Settings
from orchestration_service.version import service_version

_KEEP_ALIVE_SECONDS = 120  # above the minute for which clients keep idle connections: a close that crosses a request loses it


def create_app(
    *,
    settings: Settings,
    doorkeeper: Doorkeeper,
    operations: OperationStore,
    board: StatusBoard,
    start_turn: StartTurn,
    forks: Forks,
    remarks: Remarks | None = None,
) -> FastAPI:
    """Return the application. The caller keeps what is given open for as long as it serves."""
    app = FastAPI(
        title="ClaudeCode orchestration service",
        version=service_version(),
        description="Runs coding agents for FoundationaLLM: an external orchestration service.",
        docs_url=None,  # the pages load scripts from elsewhere
        redoc_url=None,
    )
    router = build_router(
        settings=settings,
        operations=operations,
        board=board,
        doorkeeper=doorkeeper,
        start_turn=start_turn,
        forks=forks,
        remarks=remarks or Remarks(),
    )
    app.include_router(router)
    app.router.routes.insert(0, status_route(board, doorkeeper))
    problems.install(app)
    openapi.install(app)
    return app


def server_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return how uvicorn has to serve the application.

    h11 allows 16 KiB of request head by default; the identity header alone can be larger, as it names every group of
    the user, and uvicorn would answer 400 before the application sees the request.
    """
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http="h11",
        h11_max_incomplete_event_size=settings.max_header_bytes,
        server_header=False,
        access_log=False,  # hundreds of polls per second
        log_config=None,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=10,
    )
