"""The model broker: the only place where a model's key is used.

It asks an upstream on behalf of a sandbox until there is a whole message or no more hope, within a deadline. Failures
of the upstream are answers, in words the CLI understands; nothing here waits without end.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Self

import anyio
import httpx

from orchestration_service.brokers.attempt import Attempt, run_attempt
from orchestration_service.brokers.call import DeltaListener, JsonObject, ModelAnswer, ModelCall, Restarted, usage_of
from orchestration_service.brokers.errors import BrokerClosed
from orchestration_service.brokers.judge import Verdict, judge
from orchestration_service.brokers.request import Refusal, UpstreamRequest, prepare
from orchestration_service.brokers.retry import backoff_seconds
from orchestration_service.brokers.route import ModelRoute
from workflow_schemas.model_stream import error_body
from workflow_schemas.usage import Usage

_LARGE_BODY_BYTES = 1024 * 1024
"""From here on, reading and writing the JSON takes long enough for other calls to notice; it goes to a thread."""


@dataclass
class _Progress:
    """How far a call has come; kept outside the deadline's scope so that it survives it."""

    started: float = field(default_factory=monotonic)
    """When the call began, on the monotonic clock."""
    attempts: int = 0
    """How often the upstream was asked."""
    last: Attempt | None = None
    """The last attempt, which may still run."""
    verdict: Verdict | None = None
    """What was thought of the last attempt that ended."""
    lost_usage: Usage = field(default_factory=Usage)
    """Tokens of streams that broke."""

    def note_loss(self) -> None:
        """Count, once, what the last attempt cost without giving a message."""
        if self.last is not None and self.last.usage:
            self.lost_usage = self.lost_usage.plus(usage_of(self.last.usage))
            self.last.usage = None


class ModelBroker:
    """Calls models over one pool of connections. An async context manager."""

    def __init__(
        self,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        max_connections: int = 200,
        first_wait_seconds: float = 0.5,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """Prepare the broker; connections are made when it is used.

        Args:
            transport: how HTTP is spoken; left out, over the network.
            max_connections: how many calls may run at once; more have to wait within their deadlines.
            first_wait_seconds: the longest wait after a first failure; later waits double.
            dice: random numbers from 0 to 1, for spreading the waits.
        """
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        self._client = httpx.AsyncClient(transport=transport, limits=limits, follow_redirects=False)
        self._first_wait_seconds = first_wait_seconds
        self._dice = dice
        self._open = False

    async def __aenter__(self) -> Self:
        """Open the pool of connections."""
        await self._client.__aenter__()
        self._open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close all connections."""
        self._open = False
        with anyio.CancelScope(shield=True):
            await self._client.aclose()

    async def complete(self, route: ModelRoute, call: ModelCall, on_delta: DeltaListener | None = None) -> ModelAnswer:
        """Get an answer to a call, by as many attempts as the route and the deadline allow.

        Args:
            route: where to ask, and how.
            call: what the sandbox sent.
            on_delta: told what is streamed while it comes; after a `Restarted`, what came before is void. What it
                raises ends the call and comes out of here.

        Returns:
            The message, or the error to tell the CLI. A failing upstream is never raised.

        Raises:
            BrokerClosed: the broker is not open.
        """
        if not self._open:
            raise BrokerClosed("the model broker is not open; use it inside its 'async with' block")
        if len(call.body) > _LARGE_BODY_BYTES:
            request = await anyio.to_thread.run_sync(prepare, route, call)
        else:
            request = prepare(route, call)
        if isinstance(request, Refusal):
            return ModelAnswer(request.status, "refused_by_gate", error=request.error)
        progress = _Progress()
        with anyio.move_on_after(max(0.0, call.deadline_seconds)):
            return await self._until_answered(route, call, request, progress, on_delta)
        progress.note_loss()
        return _late(route, request, progress)

    async def _until_answered(
        self,
        route: ModelRoute,
        call: ModelCall,
        request: UpstreamRequest,
        progress: _Progress,
        on_delta: DeltaListener | None,
    ) -> ModelAnswer:
        silence = route.idle_timeout_seconds
        timeout = httpx.Timeout(connect=route.connect_timeout_seconds, read=silence, write=silence, pool=None)
        while True:
            progress.attempts += 1
            progress.last = attempt = Attempt()
            await run_attempt(self._client, request, timeout, attempt, on_delta)
            if attempt.message is not None:
                return _answered(route, request, attempt, progress)
            verdict = judge(
                status=attempt.status,
                headers=attempt.headers,
                body=attempt.body,
                exception=attempt.exception,
                now=datetime.now(UTC),
            )
            progress.verdict = verdict
            progress.note_loss()
            wait = self._wait_before_next(route, call, verdict, progress)
            if wait is None:
                return _failed(route, request, progress, verdict)
            if on_delta is not None:
                on_delta(Restarted(verdict.reason, progress.attempts + 1, wait))
            await anyio.sleep(wait)

    def _wait_before_next(self, route: ModelRoute, call: ModelCall, verdict: Verdict, progress: _Progress) -> float | None:
        """Say how long to wait for the next attempt, or nothing if there is none or it would come too late."""
        if not verdict.retry or progress.attempts >= route.max_attempts:
            return None
        wait = backoff_seconds(progress.attempts, self._dice(), first=self._first_wait_seconds)
        if verdict.wait_seconds is not None:
            wait = max(wait, verdict.wait_seconds)
        left = call.deadline_seconds - (monotonic() - progress.started)
        return wait if wait < left else None


def _answered(route: ModelRoute, request: UpstreamRequest, attempt: Attempt, progress: _Progress) -> ModelAnswer:
    usage = usage_of(attempt.usage) if request.streams else Usage()
    answer = ModelAnswer(200, "answered", message=attempt.message, usage=usage)
    return _described(answer, route, (*request.remarks, *attempt.problems), progress)


def _failed(route: ModelRoute, request: UpstreamRequest, progress: _Progress, verdict: Verdict) -> ModelAnswer:
    answer = ModelAnswer(verdict.status, verdict.reason, error=verdict.error, retry_after_seconds=verdict.wait_seconds)
    return _described(answer, route, request.remarks, progress)


def _late(route: ModelRoute, request: UpstreamRequest, progress: _Progress) -> ModelAnswer:
    before = f" (before: {progress.verdict.reason})" if progress.verdict else ""
    error = error_body("timeout_error", f"the time for this model call is over{before}")
    return _described(ModelAnswer(504, "deadline", error=error), route, request.remarks, progress)


def _described(answer: ModelAnswer, route: ModelRoute, remarks: tuple[str, ...], progress: _Progress) -> ModelAnswer:
    """Add how the answer came about, and take the route's secrets out of what an upstream may have echoed."""
    last = progress.last
    headers = last.headers if last else {}
    request_id = headers.get("request-id") or headers.get("x-request-id")
    return replace(
        answer,
        error=_scrubbed(route, answer.error),
        lost_usage=progress.lost_usage,
        attempts=progress.attempts,
        request_id=route.scrub(request_id)[:200] if request_id else None,
        duration_seconds=monotonic() - progress.started,
        first_byte_seconds=last.first_byte_seconds if last else None,
        remarks=remarks,
    )


def _scrubbed(route: ModelRoute, error: JsonObject | None) -> JsonObject | None:
    if error is None:
        return None
    return error_body(str(error["error"]["type"]), route.scrub(str(error["error"]["message"])))
