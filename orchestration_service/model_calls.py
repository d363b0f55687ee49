"""Answers the model calls of one turn: route, credentials, budget, usage. The sandbox knows none of them."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestration_service.brokers.call import DeltaListener, ModelAnswer, ModelCall, ModelDelta, Restarted, TextDelta
from orchestration_service.brokers.route import ModelRoute
from orchestration_service.letters import ModelReply, ModelRequest
from workflow_schemas.model_stream import error_body
from workflow_schemas.usage import Usage

_ADVICE: Mapping[str, str] = {
    "unauthorized": "An administrator has to check the API key of the model's endpoint.",
    "unreachable": "An administrator has to check the address of the model's endpoint.",
    "not_a_model": "An administrator has to check the address of the model's endpoint.",
    "rate_limited": "Try again in a few minutes.",
    "overloaded": "Try again in a few minutes.",
}


class Broker(Protocol):
    """What is needed of the model broker."""

    async def complete(self, route: ModelRoute, call: ModelCall, on_delta: DeltaListener | None = None) -> ModelAnswer:
        """Ask the model; a failed model is an answer."""
        ...


@dataclass
class ModelCalls:
    """The model calls of one turn.

    Args:
        broker: Asks the model.
        route: Where and with which credentials.
        ends_at: Monotonic time at which the turn is over, in seconds.
        max_total_tokens: Budget of the turn, None for none.
        on_call: Told of every answer, as an activity event.
        on_text: Told of the text that is being written, for live display; None when a call begins anew.
        on_spent: Awaited once when the budget is spent.
    """

    broker: Broker
    route: ModelRoute
    ends_at: float
    max_total_tokens: int | None
    on_call: Callable[[dict[str, Any], Usage], None]
    on_text: Callable[[str | None], None]
    on_spent: Callable[[], Awaitable[None]]
    usage: Usage = field(default_factory=Usage)
    failure: str = ""
    """What was wrong with the last call that failed, in words for the user."""

    _spent: bool = False

    async def answer(self, request: ModelRequest) -> ModelReply:
        """Answer one call of the agent's CLI."""
        if self._is_spent():
            return ModelReply(400, error_body("invalid_request_error", "the token budget of this turn is spent"))
        left = max(1.0, self.ends_at - time.monotonic())
        version = request.headers.get("anthropic-version", "2023-06-01")
        beta = request.headers.get("anthropic-beta")
        call = ModelCall(request.body, request.path, version, beta, left)
        self.on_text(None)
        answer = await self.broker.complete(self.route, call, self._show)
        counted = answer.usage.plus(answer.lost_usage)
        if answer.ok and request.path == "/v1/messages":
            counted = counted.model_copy(update={"model_calls": 1})
        self.usage = self.usage.plus(counted)
        event = {
            "type": "model_call",
            "at": time.time(),
            "call_id": request.call_id,
            "status": answer.status,
            "input_tokens": answer.usage.prompt_tokens,
            "output_tokens": answer.usage.output_tokens,
            "duration_seconds": round(answer.duration_seconds, 4),
        }
        if not answer.ok:
            self.failure = _failure(answer)
        self.on_call(event, self.usage)
        if self._is_spent() and not self._spent:
            self._spent = True
            await self.on_spent()
        return ModelReply(answer.status, answer.message or answer.error or {}, answer.retry_after_seconds)

    def _is_spent(self) -> bool:
        return self.max_total_tokens is not None and self.usage.total_tokens >= self.max_total_tokens

    def _show(self, delta: ModelDelta) -> None:
        if isinstance(delta, TextDelta):
            self.on_text(delta.text)
        elif isinstance(delta, Restarted):
            self.on_text(None)


def _failure(answer: ModelAnswer) -> str:
    error = (answer.error or {}).get("error")
    words = str(error.get("message", "")) if isinstance(error, dict) else ""
    tries = f" after {answer.attempts} attempts" if answer.attempts > 1 else ""
    advice = _ADVICE.get(answer.reason, "")
    return f"the model's endpoint answered {answer.status} ({answer.reason.replace('_', ' ')}){tries}: {words[:400]} {advice}".strip()
