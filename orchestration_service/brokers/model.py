"""The model broker: the only place where a model's key is used.

It asks an upstream on behalf of a sandbox until there is a whole message or no more hope, within a deadline. Failures
of the upstream are answers, in words the CLI understands; nothing here waits without end.
"""

import importlib
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import httpx

from orchestration_service.brokers.attempt import Attempt, run_attempt
from orchestration_service.brokers.call import DeltaListener, EventListener, JsonObject, ModelAnswer, ModelCall, Restarted, usage_of
from orchestration_service.brokers.errors import BrokerClosed
from orchestration_service.brokers.identities import Identities
from orchestration_service.brokers.judge import Verdict, judge
from orchestration_service.brokers.omissions import NOTHING, Omissions, refused_parts
from orchestration_service.brokers.request import Refusal, UpstreamRequest, prepare
from orchestration_service.brokers.retry import backoff_seconds
from orchestration_service.brokers.route import ModelRoute
from workflow_schemas.model_stream import error_body
from workflow_schemas.usage import Usage

if TYPE_CHECKING:
    from orchestration_service.brokers.clients import ModelClients

_LARGE_BODY_BYTES = 1024 * 1024
"""From here on, reading and writing the JSON takes long enough for other calls to notice; it goes to a thread."""
_REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid", "apim-request-id", "x-ms-request-id")
"""Headers in which the providers name a request."""
_MOST_OMISSIONS = 8
"""How often one call is made again without something that was refused."""


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
    on_event: EventListener | None = None
    """Takes the events of each attempt's stream."""
    omissions: Omissions = NOTHING
    """What was left out because the upstream refused it."""
    omitted: int = 0
    """How often something was left out."""

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
        self._http = httpx.AsyncClient(transport=transport, limits=limits, follow_redirects=False)
        self._first_wait_seconds = first_wait_seconds
        self._dice = dice
        self._stack = AsyncExitStack()
        self._clients: ModelClients | None = None

    async def __aenter__(self) -> Self:
        """Open the pool of connections."""
        # the official package takes half a second to import, so it is not imported with everything, and in a thread
        clients = await anyio.to_thread.run_sync(importlib.import_module, "orchestration_service.brokers.clients")
        await self._stack.enter_async_context(self._http)
        self._clients = clients.ModelClients(self._http, Identities(self._stack))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close all connections."""
        self._clients = None
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()

    async def complete(
        self, route: ModelRoute, call: ModelCall, on_delta: DeltaListener | None = None, on_event: EventListener | None = None
    ) -> ModelAnswer:
        """Get an answer to a call, by as many attempts as the route and the deadline allow.

        Args:
            route: where to ask, and how.
            call: what the sandbox sent.
            on_delta: told what is streamed while it comes; after a `Restarted`, what came before is void. What it
                raises ends the call and comes out of here.
            on_event: takes the events of the stream as they come. Once something of them is out, a stream that breaks
                is not asked for again.

        Returns:
            The message, or the error to tell the CLI. A failing upstream is never raised.

        Raises:
            BrokerClosed: the broker is not open.
        """
        if self._clients is None:
            raise BrokerClosed("the model broker is not open; use it inside its 'async with' block")
        omissions = self._clients.omissions(route, streams="count_tokens" not in call.path)
        request = await _prepared(route, call, omissions)
        if isinstance(request, Refusal):
            return ModelAnswer(request.status, "refused_by_gate", error=request.error)
        progress = _Progress(on_event=on_event, omissions=omissions)
        with anyio.move_on_after(max(0.0, call.deadline_seconds)):
            return await self._until_answered(self._clients, route, call, request, progress, on_delta)
        progress.note_loss()
        return _late(route, request, progress)

    async def _until_answered(
        self,
        clients: "ModelClients",
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
            progress.last = attempt = Attempt(on_event=progress.on_event)
            await run_attempt(clients, route, request, timeout, attempt, on_delta)
            if attempt.message is not None:
                if progress.omitted:
                    clients.learn(route, progress.omissions, streams=request.streams)
                return _answered(route, request, attempt, progress)
            verdict = _verdict(attempt)
            progress.verdict = verdict
            progress.note_loss()
            if verdict.reason == "unauthorized":
                clients.distrust(route)
            if progress.on_event is not None and progress.on_event.is_out:
                return _failed(route, request, progress, verdict)
            without = await _without_what_was_refused(route, call, request, verdict, progress)
            wait = 0.0 if without else self._wait_before_next(route, call, verdict, progress)
            if wait is None:
                return _failed(route, request, progress, verdict)
            request = without or request
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
        if call.longest_wait_seconds is not None and wait > call.longest_wait_seconds:
            return None
        left = call.deadline_seconds - (monotonic() - progress.started)
        return wait if wait < left else None


async def _prepared(route: ModelRoute, call: ModelCall, omissions: Omissions) -> UpstreamRequest | Refusal:
    if len(call.body) > _LARGE_BODY_BYTES:
        return await anyio.to_thread.run_sync(prepare, route, call, omissions)
    return prepare(route, call, omissions)


async def _without_what_was_refused(
    route: ModelRoute, call: ModelCall, request: UpstreamRequest, verdict: Verdict, progress: _Progress
) -> UpstreamRequest | None:
    """Give the request without what a refusal names, if it names something that may be left out and has not been yet."""
    if verdict.status != 400 or progress.omitted >= _MOST_OMISSIONS:
        return None
    fixed = route.parameters.model_dump(exclude_none=True)
    more = refused_parts(str(verdict.error["error"]["message"]), request.fields, request.betas, tuple(fixed))
    if more is None:
        return None
    progress.omitted += 1
    progress.omissions |= more
    without = await _prepared(route, call, progress.omissions)
    return without if isinstance(without, UpstreamRequest) else None


def _verdict(attempt: Attempt) -> Verdict:
    return judge(
        status=attempt.status,
        headers=attempt.headers,
        body=attempt.body,
        exception=attempt.exception,
        now=datetime.now(UTC),
    )


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
    request_id = next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)
    proofs = last.proofs if last else ()
    return replace(
        answer,
        error=_scrubbed(route, proofs, answer.error),
        lost_usage=progress.lost_usage,
        attempts=progress.attempts,
        request_id=route.scrub(request_id, proofs)[:200] if request_id else None,
        duration_seconds=monotonic() - progress.started,
        first_byte_seconds=last.first_byte_seconds if last else None,
        remarks=remarks,
    )


def _scrubbed(route: ModelRoute, proofs: tuple[str, ...], error: JsonObject | None) -> JsonObject | None:
    if error is None:
        return None
    return error_body(str(error["error"]["type"]), route.scrub(str(error["error"]["message"]), proofs))
