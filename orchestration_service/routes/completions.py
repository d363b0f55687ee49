"""Starting completions: accepted at once for the platform, waited for on behalf of direct callers."""

from __future__ import annotations

import hashlib
import uuid
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from orchestration_service.errors import OperationConflict
from orchestration_service.operations import AcceptedTurn, NewOperation, Operation, OperationStore, StartTurn, StatusBoard
from orchestration_service.routes.bodies import read_body, read_completion
from orchestration_service.routes.openapi import COMPLETION_BODY, IDENTITY_PARAMETER
from orchestration_service.routes.problems import documented
from orchestration_service.security import Caller, Doorkeeper
from orchestration_service.settings import Settings
from workflow_schemas.platform import (
    CompletionRequest,
    CompletionResponse,
    LongRunningOperation,
    failed_response,
    to_wire,
)

ACCEPTED = "The operation is being processed by ClaudeCode."
NOT_STARTED = "The work could not be started because of a fault in the service. Please send the message again."
InstanceId = Annotated[str, Path(description="Id of the platform instance.")]


class Acceptance:
    """Turns a request into a stored operation whose turn has been scheduled, exactly once per operation id."""

    def __init__(
        self,
        *,
        settings: Settings,
        operations: OperationStore,
        board: StatusBoard,
        doorkeeper: Doorkeeper,
        start_turn: StartTurn,
    ) -> None:
        self._settings = settings
        self._operations = operations
        self._board = board
        self._doorkeeper = doorkeeper
        self._start_turn = start_turn

    async def accept(self, instance_id: str, request: Request) -> Operation:
        """Return the operation a request means, new or accepted earlier.

        Raises:
            CallerError: The request is refused; nothing was stored.
            StoreError: The operation could not be stored; nothing was started.
        """
        caller = self._doorkeeper.admit(instance_id, request.headers)
        body = await read_body(request, self._settings.max_body_bytes)
        completion, new = await anyio.to_thread.run_sync(self._read, body, caller)  # may take long: bodies can be large
        created = await self._operations.create(new)
        if not created.is_new:
            if created.operation.fingerprint != new.fingerprint:
                raise OperationConflict(new.operation_id, "was started with another request")
            return created.operation
        self._board.show(created.operation)
        await self._start(
            AcceptedTurn(
                operation=created.operation,
                request=completion,
                identity=caller.identity,
                identity_header=caller.identity_header,
                traceparent=request.headers.get("traceparent"),
            )
        )
        return created.operation

    def _read(self, body: bytes, caller: Caller) -> tuple[CompletionRequest, NewOperation]:
        completion = read_completion(body)
        operation_id = completion.operation_id or str(uuid.uuid4())
        kept = to_wire(completion)
        return completion, NewOperation(
            operation_id=operation_id,
            instance_id=self._doorkeeper.instance_id,
            upn=caller.upn,
            conversation_id=completion.session_id or None,
            agent_name=completion.agent.name,
            fingerprint=hashlib.sha256(kept).hexdigest(),
            request=kept,
            identity_header=caller.identity_header,
        )

    async def _start(self, turn: AcceptedTurn) -> None:
        operation = turn.operation
        try:
            await self._start_turn(turn)
        except BaseException as error:  # the operation is stored: whoever polls it must find an end
            result = failed_response(
                operation.operation_id,
                NOT_STARTED,
                user_prompt=turn.request.user_prompt,
                agent_name=operation.agent_name,
                errors=[f"start failed: {type(error).__name__}"],
            )
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await self._board.finish(operation.operation_id, "Failed", result, status_message=NOT_STARTED)
            raise


def router(acceptance: Acceptance, *, board: StatusBoard, settings: Settings) -> APIRouter:
    """Return the two routes that start completions."""
    routes = APIRouter(tags=["completions"])

    @routes.post("/instances/{instance_id}/async-completions", status_code=202, **_described(202))
    async def start_completion(instance_id: InstanceId, request: Request) -> Response:
        """Accept a completion and answer at once. Repeating a request under its operation id starts nothing new."""
        return _accepted(await acceptance.accept(instance_id, request))

    @routes.post("/instances/{instance_id}/completions", **_described(200, 202))
    async def run_completion(instance_id: InstanceId, request: Request) -> Response:
        """Start a completion and wait for its answer; after the time limit answer 202, to be polled.

        The turn belongs to the service: it goes on when the caller leaves.
        """
        operation = await acceptance.accept(instance_id, request)
        ended = await _wait_while_connected(request, board, operation, settings.sync_timeout_seconds)
        if ended is None or ended.result is None:
            return _accepted(operation)
        return Response(to_wire(ended.result), media_type="application/json")

    return routes


def _described(*statuses: int) -> dict[str, Any]:
    answers: dict[int, dict[str, Any]] = {
        200: {"model": CompletionResponse, "description": "The answer."},
        202: {"model": LongRunningOperation, "description": "Accepted; poll the status."},
    }
    return {
        "responses": {**{one: answers[one] for one in statuses}, **documented(400, 401, 403, 409, 413, 503, 507)},
        "response_class": Response,
        "openapi_extra": {
            "requestBody": COMPLETION_BODY,
            "parameters": [IDENTITY_PARAMETER],
            "security": [{"ApiKey": []}],
        },
    }


def _accepted(operation: Operation) -> Response:
    """Answer that an operation is in progress, even if it has ended: its end is told by the status alone.

    The platform passes the body of this answer on without filling in file addresses.
    """
    answer = LongRunningOperation(
        operation_id=operation.operation_id,
        status="InProgress",
        status_message=ACCEPTED,
        upn=operation.upn,
        last_updated=operation.updated_at,
    )
    return Response(to_wire(answer), 202, media_type="application/json")


async def _wait_while_connected(request: Request, board: StatusBoard, operation: Operation, timeout_seconds: float) -> Operation | None:
    ended: Operation | None = None
    async with anyio.create_task_group() as tasks:

        async def leave_with_the_client() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave_with_the_client)
        with anyio.move_on_after(timeout_seconds):
            ended = await board.wait_finished(operation.operation_id, operation.upn)
        tasks.cancel_scope.cancel()
    return ended
