"""The platform's State API as a mirror of status and result.

External orchestrators need not use it; where it is configured, whoever looks there sees what our own status answer says. The
store stays the truth: `mirrored` wraps it, notes which operations changed, and one worker sends their present state. So a State
API that is slow or away delays nothing, gets the newest state when it is back, and never an older one after a newer.

Scars of that API: a result gets a random id unless it has one, and the newest is chosen by whole seconds, so every result of
an operation is sent under one id (not the operation's own, which would overwrite it). Each PUT adds a line to a log, so
progress travels as a result. The result is sent before the status that promises it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, cast
from urllib.parse import quote

import anyio
import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from orchestration_service.errors import StoreError
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.model import Created, FinalStatus, NewOperation, Operation, OperationStore
from workflow_schemas.platform import CompletionResponse, progress_response, to_wire

logger = logging.getLogger(__name__)

MESSAGE_LIMIT = 500
LONGEST_PAUSE_SECONDS = 30.0
CLOSING_SECONDS = 5.0
"""How long the last states may take to be sent when the service ends."""
ENTERED_KEPT = 10_000


class StateApiSettings(BaseModel):
    """Where the State API is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    url: str = Field(pattern=r"^https?://")
    """Address: the value behind FoundationaLLM:APIEndpoints:StateAPI:Essentials:APIUrl."""
    api_key: SecretStr
    """Key: the value behind FoundationaLLM:APIEndpoints:StateAPI:Essentials:APIKey."""
    progress_seconds: float = Field(default=2.0, ge=0)
    """Shortest time between two states of one operation while it runs; each one is stored there."""
    request_seconds: float = Field(default=10.0, gt=0)
    """How long one request may take."""


@asynccontextmanager
async def mirrored(store: OperationStore, settings: StateApiSettings, *, instance_id: str) -> AsyncIterator[OperationStore]:
    """Give a store whose operations show in the State API too, until the end of the block.

    Operations in progress are sent at the beginning, so a process that takes over brings the mirror up to date. At the end
    the last states are sent if that takes no more than some seconds.

    Args:
        store: The store; everything it raises passes, nothing the State API does is raised.
        settings: Where the State API is.
        instance_id: The platform instance whose operations are sent.
    """
    headers = {"X-API-KEY": settings.api_key.get_secret_value()}
    async with httpx.AsyncClient(base_url=settings.url.rstrip("/"), headers=headers, timeout=settings.request_seconds) as client:
        worker = _Worker(store, _StateApi(client, instance_id), settings, instance_id)
        for operation in await store.unfinished(instance_id):
            worker.note(operation.operation_id)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run)
                try:
                    yield cast(OperationStore, _Mirrored(store, worker))
                finally:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSING_SECONDS):
                        await worker.drain()
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            (only,) = group.exceptions  # the task group is our business: callers get their own error back
            raise only from only.__cause__


class _Mirrored:
    """Passes everything on to the store, and notes the calls that change what is shown."""

    def __init__(self, store: OperationStore, worker: _Worker) -> None:
        self._store = store
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)  # some twenty methods that do not concern the mirror

    async def create(self, new: NewOperation) -> Created:
        created = await self._store.create(new)
        self._worker.note(new.operation_id)
        return created

    async def save_progress(
        self,
        operation_id: str,
        status_message: str,
        *,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        claim: Claim | None = None,
    ) -> None:
        await self._store.save_progress(
            operation_id, status_message, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, claim=claim
        )
        self._worker.note(operation_id)

    async def finish(
        self,
        operation_id: str,
        status: FinalStatus,
        result: CompletionResponse,
        *,
        status_message: str | None = None,
        adopt: bool = False,
        claim: Claim | None = None,
    ) -> Operation:
        operation = await self._store.finish(operation_id, status, result, status_message=status_message, adopt=adopt, claim=claim)
        self._worker.note(operation_id, urgent=True)
        return operation


class _Worker:
    """Sends the present state of whatever was noted, one operation at a time."""

    def __init__(self, store: OperationStore, api: _StateApi, settings: StateApiSettings, instance_id: str) -> None:
        self._store = store
        self._api = api
        self._progress_seconds = settings.progress_seconds
        self._instance_id = instance_id
        self._due: dict[str, float] = {}
        self._noted = anyio.Event()
        self._idle = anyio.Event()
        self._last_sent: dict[str, float] = {}
        self._pause = 0.0
        self._is_sending = False

    def note(self, operation_id: str, *, urgent: bool = False) -> None:
        """Have an operation sent: at once, or as soon as its last state is old enough."""
        due = 0.0 if urgent else self._last_sent.get(operation_id, float("-inf")) + self._progress_seconds
        self._due[operation_id] = min(due, self._due.get(operation_id, due))
        self._noted.set()

    async def run(self) -> None:
        """Send what is due, for ever."""
        while True:
            self._noted = anyio.Event()
            self._is_sending = True
            await self._send_due()
            self._is_sending = False
            self._idle.set()
            self._idle = anyio.Event()
            next_due = min(self._due.values(), default=float("inf"))
            with anyio.move_on_after(max(self._pause, next_due - anyio.current_time())):
                await self._noted.wait()
            if self._pause:
                await anyio.sleep(self._pause)

    async def drain(self) -> None:
        """Wait until everything noted has been sent."""
        self._due = dict.fromkeys(self._due, 0.0)
        self._noted.set()
        while self._due or self._is_sending:
            await self._idle.wait()

    async def _send_due(self) -> None:
        for operation_id in [one for one, due in self._due.items() if due <= anyio.current_time()]:
            due = self._due.pop(operation_id)
            try:
                await self._send(operation_id)
                self._pause = 0.0
            except (httpx.TransportError, _Refused, StoreError) as error:
                if isinstance(error, _Refused) and not error.may_pass:
                    logger.error("The State API refuses operation %r: %s. It will not show there.", operation_id, error)
                    continue
                self._due[operation_id] = min(due, self._due.get(operation_id, due))
                self._pause = min(LONGEST_PAUSE_SECONDS, self._pause * 2 or 0.5)
                logger.warning("The State API did not take operation %r (%s); trying again in %.1f s", operation_id, error, self._pause)
                return

    async def _send(self, operation_id: str) -> None:
        operation = await self._store.get(self._instance_id, operation_id)
        if operation is None:
            return
        await self._api.send(operation)
        self._last_sent.pop(operation_id, None)
        if not operation.is_finished:
            self._last_sent[operation_id] = anyio.current_time()


class _Refused(Exception):
    """An answer that is no success."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"HTTP {response.status_code}: {response.text[:200]}")
        self.may_pass = response.status_code >= 500 or response.status_code in {408, 429}


class _StateApi:
    """The three calls, for one instance."""

    def __init__(self, client: httpx.AsyncClient, instance_id: str) -> None:
        self._client = client
        self._operations = f"/instances/{quote(instance_id, safe='')}/operations"
        self._entered: dict[str, None] = {}

    async def send(self, operation: Operation) -> None:
        """Show an operation as it stands: first what came of it so far, then its status.

        Raises:
            httpx.TransportError: There was no answer.
            _Refused: The answer was no success.
        """
        await self._enter(operation)
        result = operation.result or progress_response(
            operation.operation_id,
            operation.status_message,
            prompt_tokens=operation.prompt_tokens,
            completion_tokens=operation.completion_tokens,
        )
        body = {**json.loads(to_wire(result)), "id": f"{operation.operation_id}-result", "operation_id": operation.operation_id}
        await self._call("POST", operation, body, "/result")
        if operation.is_finished:
            status = {"status": operation.status, "status_message": operation.status_message[:MESSAGE_LIMIT]}
            await self._call("PUT", operation, {"operation_id": operation.operation_id, **status, "upn": operation.upn})
            self._entered.pop(operation.operation_id, None)

    async def _enter(self, operation: Operation) -> None:
        """Create the operation unless the Orchestration API has done so, as it usually has."""
        if operation.operation_id in self._entered:
            return
        path = f"{self._operations}/{quote(operation.operation_id, safe='')}"
        found = await self._client.get(path)
        if found.status_code == 404:
            body = {"operation_id": operation.operation_id, "instance_id": operation.instance_id, "upn": operation.upn}
            await self._call("POST", operation, body)
        elif not found.is_success:
            raise _Refused(found)
        while len(self._entered) >= ENTERED_KEPT:
            del self._entered[next(iter(self._entered))]
        self._entered[operation.operation_id] = None

    async def _call(self, method: Literal["POST", "PUT"], operation: Operation, body: dict[str, Any], part: str = "") -> None:
        path = f"{self._operations}/{quote(operation.operation_id, safe='')}{part}"
        response = await self._client.request(method, path, json=body)
        if not response.is_success:
            raise _Refused(response)
