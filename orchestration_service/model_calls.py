"""Answers the model calls of one turn: models, credentials, budget, usage. The sandbox knows none of them."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestration_service.answer_stream import AnswerStream
from orchestration_service.brokers.call import DeltaListener, EventListener, ModelAnswer, ModelCall, ModelDelta, Restarted, TextDelta
from orchestration_service.brokers.route import ModelRoute
from orchestration_service.fallbacks import REST_SECONDS, Turnout, ends_call, share_of, wait_of
from orchestration_service.letters import ModelReply, ModelRequest
from orchestration_service.model_routes import RoutedModel
from orchestration_service.spending import Charge, Spending
from workflow_schemas.model_stream import error_body
from workflow_schemas.properties import ModelWay
from workflow_schemas.usage import Usage

_ADVICE: Mapping[str, str] = {
    "unauthorized": "An administrator has to check the key or identity of the model's endpoint.",
    "unreachable": "An administrator has to check the address of the model's endpoint.",
    "not_a_model": "An administrator has to check the address of the model's endpoint.",
    "rate_limited": "Try again in a few minutes.",
    "overloaded": "Try again in a few minutes.",
}
_MESSAGES = "/v1/messages"
_MOST_REMARKS = 20


class Broker(Protocol):
    """What is needed of the model broker."""

    async def complete(
        self, route: ModelRoute, call: ModelCall, on_delta: DeltaListener | None = None, on_event: EventListener | None = None
    ) -> ModelAnswer:
        """Ask the model; a failed model is an answer."""
        ...


@dataclass(frozen=True)
class _Asked:
    model: RoutedModel
    answer: ModelAnswer


@dataclass
class ModelCalls:
    """The model calls of one turn.

    Args:
        broker: Asks a model.
        models: Which model is asked, and which next.
        spending: The account of the turn.
        ends_at: Monotonic time at which the turn is over, in seconds.
        max_total_tokens: Budget of the turn, None for none.
        on_call: Told of every answer, as an activity event.
        on_text: Told of the text that is being written, for live display; None when a call begins anew.
        on_spent: Awaited once when the budget is spent.
        remarks: What was told of earlier calls.
    """

    broker: Broker
    models: Turnout
    spending: Spending
    ends_at: float
    max_total_tokens: int | None
    on_call: Callable[[dict[str, Any], Usage], None]
    on_text: Callable[[str | None], None]
    on_spent: Callable[[], Awaitable[None]]
    failure: str = ""
    """What was wrong with the last call that failed, in words for the user."""

    remarks: list[str] = field(default_factory=list)
    """What the user should know about the models, each once."""

    ways: Counter[ModelWay] = field(default_factory=Counter)
    """How many calls came which way."""

    _spent: bool = False

    async def answer(self, request: ModelRequest, stream: AnswerStream | None = None) -> ModelReply:
        """Answer one call of the agent's CLI, by the model it is for or by one that takes its place.

        Args:
            request: The call.
            stream: Takes the answer while it comes, for a caller that may leave; once something of it is out, nobody else is asked.
        """
        self.ways["mailbox" if stream is None else "direct"] += 1
        if self._is_spent():
            return ModelReply(400, error_body("invalid_request_error", "the token budget of this turn is spent"))
        started = time.monotonic()
        candidates = self.models.candidates(request.body)
        asked = await self._ask(request, candidates, stream)
        told = _told(asked, candidates)
        charges = [self._charge(one, request) for one in asked]
        instead = [text for text in self.models.remarks(candidates, told.model) if text not in self.remarks] if told.answer.ok else []
        notes = self._note(instead, asked)
        if not told.answer.ok and not (stream is not None and stream.is_left):
            self.failure = _failures(asked)
        self._report(request, told, time.monotonic() - started, instead)
        if self._is_spent() and not self._spent:
            self._spent = True
            await self.on_spent()
        beside: dict[str, Any] = {}
        if paid := [charge.model_dump(mode="json", exclude_defaults=True) for charge in charges if charge.counted.total_tokens]:
            beside["charges"] = paid
        if notes:
            beside["remarks"] = notes
        answer = told.answer
        return ModelReply(answer.status, answer.message or answer.error or {}, answer.retry_after_seconds, beside)

    async def _ask(self, request: ModelRequest, candidates: Sequence[RoutedModel], stream: AnswerStream | None) -> list[_Asked]:
        """Ask one model after the other until one answers, or the main one says something that no other could better."""
        models = self.models.awake_first(candidates, time.monotonic())
        version = request.headers.get("anthropic-version", "2023-06-01")
        beta = request.headers.get("anthropic-beta")
        asked: list[_Asked] = []
        for number, model in enumerate(models, start=1):
            left = max(1.0, self.ends_at - time.monotonic())
            call = ModelCall(request.body, request.path, version, beta, share_of(left, models[number:]), wait_of(models[number:]))
            self.on_text(None)
            answer = await self._complete(model, call, stream)
            asked.append(_Asked(model, answer))
            if answer.ok:
                self.models.wake(model)
                break
            if ends_call(answer.reason, is_main=model is self.models.routes.main) or (stream is not None and stream.is_over):
                break
            rest = max(REST_SECONDS, answer.retry_after_seconds or 0.0) if answer.reason != "refused" else 0.0
            self.models.rest(model, answer.reason, time.monotonic() + rest)
        return asked

    async def _complete(self, model: RoutedModel, call: ModelCall, stream: AnswerStream | None) -> ModelAnswer:
        if stream is None:
            return await self.broker.complete(model.route, call, self._show)
        stream.begin()
        return await stream.while_wanted(self.broker.complete(model.route, call, self._show, stream))

    def _charge(self, one: _Asked, request: ModelRequest) -> Charge:
        answer = one.answer
        usage = answer.usage if answer.ok and request.path == _MESSAGES else answer.usage.model_copy(update={"model_calls": 0})
        name = (answer.message or {}).get("model")
        answered_as = name[:200] if isinstance(name, str) and name != one.model.model else ""
        charge = Charge(role=one.model.role, answered_as=answered_as, usage=usage, lost=answer.lost_usage)
        self.spending.add(charge)
        return charge

    def _note(self, instead: Sequence[str], asked: Sequence[_Asked]) -> list[str]:
        """Return what is new of what the user should know about the models."""
        said = [
            f"The model {one.model.model!r}: {remark}."
            for one in asked
            for remark in one.answer.remarks  # of what the CLI asked for nobody here knows anything
            if "left out" in remark and remark.partition(" ")[0] in one.model.route.parameters.model_fields_set
        ]
        new = [text for text in dict.fromkeys((*instead, *said)) if text not in self.remarks]
        new = new[: max(0, _MOST_REMARKS - len(self.remarks))]
        self.remarks += new
        return new

    def _report(self, request: ModelRequest, told: _Asked, seconds: float, instead: Sequence[str]) -> None:
        now = time.time()
        for note in instead:
            self.on_call({"type": "warning", "at": now, "message": note}, self.spending.usage)
        event = {
            "type": "model_call",
            "at": now,
            "call_id": request.call_id,
            "model": told.model.model,
            "status": told.answer.status,
            "input_tokens": told.answer.usage.prompt_tokens,
            "output_tokens": told.answer.usage.output_tokens,
            "duration_seconds": round(seconds, 4),
        }
        self.on_call(event, self.spending.usage)

    def _is_spent(self) -> bool:
        return self.max_total_tokens is not None and self.spending.usage.total_tokens >= self.max_total_tokens

    def _show(self, delta: ModelDelta) -> None:
        if isinstance(delta, TextDelta):
            self.on_text(delta.text)
        elif isinstance(delta, Restarted):
            self.on_text(None)


def _told(asked: Sequence[_Asked], candidates: Sequence[RoutedModel]) -> _Asked:
    """Return the answer that goes to the CLI: a message; else a refusal, because the CLI can ask again in plainer words; else the first."""
    for one in asked:
        if one.answer.ok:
            return one
    refused = [one for one in asked if one.answer.reason == "refused"]
    return refused[-1] if refused else min(asked, key=lambda one: candidates.index(one.model))


def _failures(asked: Sequence[_Asked]) -> str:
    return " ".join(_failure(one.answer, one.model.model if len(asked) > 1 else "") for one in asked)


def _failure(answer: ModelAnswer, model: str) -> str:
    error = (answer.error or {}).get("error")
    words = str(error.get("message", "")) if isinstance(error, dict) else ""
    tries = f" after {answer.attempts} attempts" if answer.attempts > 1 else ""
    advice = _ADVICE.get(answer.reason, "")
    whose = f"the endpoint of {model!r}" if model else "the model's endpoint"
    return f"{whose} answered {answer.status} ({answer.reason.replace('_', ' ')}){tries}: {words[:400]} {advice}".strip()
