"""What a turn is doing, as it does it: activity events over Server-Sent Events.

The stream is read from the store and only woken by the board. So a watcher who comes late, comes back after a cut
connection, or watches a turn that runs in another process sees the same events in the same order, each once.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from orchestration_service.errors import RequestInvalid, StoreError
from orchestration_service.operations import OperationStore, StatusBoard, StoredEvent
from orchestration_service.routes.openapi import EVENT_SCHEMA, IDENTITY_PARAMETER
from orchestration_service.routes.problems import documented
from orchestration_service.security import Doorkeeper

BATCH = 200
"""Events read from the store and sent at once."""
ELSEWHERE_SECONDS = 1.0
"""How often the store is asked about a turn that runs in another process."""
_EVENT_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_NUMBER = re.compile(r"[0-9]{1,15}")


def router(operations: OperationStore, *, board: StatusBoard, doorkeeper: Doorkeeper, keep_alive_seconds: float) -> APIRouter:
    """Return the route of the event stream."""
    routes = APIRouter(tags=["activity"])
    last_id = {
        "name": "Last-Event-ID",
        "in": "header",
        "required": False,
        "description": "Number of the last event seen; sent by browsers that reconnect. Wins over `after`.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
    }
    extra: dict[str, Any] = {"parameters": [IDENTITY_PARAMETER, last_id], "security": [{"ApiKey": []}]}
    stream = {"description": "The events.", "content": {"text/event-stream": {"schema": EVENT_SCHEMA}}}
    nothing = {"description": "The turn has ended and all its events were seen: do not reconnect."}

    @routes.get(
        "/instances/{instance_id}/async-completions/{operation_id}/events",
        responses={200: stream, 204: nothing, **documented(400, 401, 403, 404, 503, 507)},
        response_class=StreamingResponse,
        openapi_extra=extra,
        summary="Watch a completion",
    )
    async def watch(
        instance_id: Annotated[str, Path(description="Id of the platform instance.")],
        operation_id: Annotated[str, Path(description="Id of the operation.")],
        request: Request,
        after: Annotated[int, Query(ge=0, le=10**15 - 1, description="Number of the last event already seen.")] = 0,
    ) -> Response:
        """Send the events of a turn: those stored first, then new ones as they happen, and `end` last."""
        caller = doorkeeper.admit(instance_id, request.headers)
        operation = await board.current(operation_id, caller.upn)
        seen = _last_seen(request, after)
        if operation.is_finished and seen and not await operations.events(operation_id, seen, 1):
            return Response(status_code=204)
        activity = _Activity(operations, board, keep_alive_seconds=keep_alive_seconds)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        frames = activity.frames(operation_id, caller.upn, seen)
        return StreamingResponse(frames, media_type="text/event-stream", headers=headers)

    return routes


def _last_seen(request: Request, after: int) -> int:
    sent = request.headers.get("last-event-id")
    if sent is None:
        return after
    if not _NUMBER.fullmatch(sent):
        raise RequestInvalid("Last-Event-ID must be the number of an event, as sent in 'id'. Leave it out to start over.")
    return int(sent)


class _Activity:
    def __init__(self, operations: OperationStore, board: StatusBoard, *, keep_alive_seconds: float) -> None:
        self._operations = operations
        self._board = board
        self._keep_alive_seconds = keep_alive_seconds

    async def frames(self, operation_id: str, upn: str, after: int) -> AsyncIterator[bytes]:
        """Yield the stream. No task group or cancel scope is open at any ``yield``: whoever iterates may be cancelled."""
        yield b"retry: 1000\n\n"
        try:
            while True:
                # the order matters: an event stored before the end was seen is read after it, so none is missed
                operation = await self._board.current(operation_id, upn)
                version = self._board.version(operation_id)
                events = await self._operations.events(operation_id, after, BATCH)
                if events:
                    after = events[-1].sequence
                    yield b"".join(_frame(event) for event in events)
                elif operation.is_finished:
                    yield f'event: end\ndata: {{"type": "end", "status": "{operation.status}"}}\n\n'.encode()
                    return
                elif not await self._wait(operation_id, version):
                    yield b": still here\n\n"
        except StoreError:
            # the answer has begun, so there is no status left to send: the watcher reconnects and is told then
            yield b": the operation store failed\n\n"

    async def _wait(self, operation_id: str, version: int) -> bool:
        if self._board.is_ours(operation_id):
            return await self._board.wait_change(operation_id, version, self._keep_alive_seconds)
        return await self._board.wait_change(operation_id, version, min(ELSEWHERE_SECONDS, self._keep_alive_seconds))


def _frame(stored: StoredEvent) -> bytes:
    kind = stored.event.get("type")
    name = kind if isinstance(kind, str) and _EVENT_NAME.fullmatch(kind) else "message"  # it comes from a sandbox
    return f"id: {stored.sequence}\nevent: {name}\ndata: {json.dumps(stored.event)}\n\n".encode()
