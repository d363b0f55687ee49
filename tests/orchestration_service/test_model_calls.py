"""The model calls of a turn against models on real sockets: which one is asked, which one next, and what it costs."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import Mount

from orchestration_service.brokers.model import ModelBroker
from orchestration_service.brokers.route import ModelParameters, ModelRoute
from orchestration_service.fallbacks import Turnout
from orchestration_service.letters import ModelReply, ModelRequest
from orchestration_service.model_calls import ModelCalls
from orchestration_service.model_routes import RoutedModel, TurnRoutes
from orchestration_service.prices import shipped_prices
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import HttpAnswer, Script, Step
from orchestration_service.spending import Charge, Spending
from workflow_schemas.usage import Usage

pytestmark = pytest.mark.anyio

KEY = SecretStr("sk-models-0123456789")
NAMES = {
    "main_model": "claude-sonnet-4-5",
    "small_model": "claude-haiku-4-5",
    "fallback_model": "claude-opus-4-5",
    "fallback_model_2": "ours",
}
USED: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 100}


def well(text: str = "Here.") -> Step:
    return Step(text=text, usage=USED)


def answers(status: int, **headers: str) -> Step:
    return Step(http=HttpAnswer(status=status, headers=headers))


@dataclass
class Turn:
    """The models of a turn and everything that was told of it."""

    calls: ModelCalls
    models: dict[str, ScriptedModel]
    events: list[dict[str, Any]] = field(default_factory=list)
    replies: list[ModelReply] = field(default_factory=list)

    async def ask(self, model: str = NAMES["main_model"], path: str = "/v1/messages") -> ModelReply:
        body = {"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": "go"}]}
        self.replies.append(await self.calls.answer(ModelRequest(f"call-{len(self.replies)}", path, {}, json.dumps(body).encode())))
        return self.replies[-1]

    def asked(self, role: str) -> int:
        return len(self.models[role].received)

    @property
    def spending(self) -> Spending:
        return self.calls.spending


@asynccontextmanager
async def turn(steps: dict[str, list[Step]], *, parameters: ModelParameters | None = None, seconds: float = 60.0) -> AsyncIterator[Turn]:
    """Serve a model for each role, and yield a turn that may call them."""
    models = {
        role: ScriptedModel(
            Script(name=role, steps=tuple(played) or (well(),), stepping="in_order", when_over="repeat_last"), expected_key=KEY
        )
        for role, played in steps.items()
    }
    app = Starlette(routes=[Mount(f"/{role}", model) for role, model in models.items()])
    async with serve(app) as endpoint, ModelBroker(first_wait_seconds=0.001) as broker:

        def routed(role: str) -> RoutedModel:
            route = ModelRoute(
                base_url=f"{endpoint.base_url}/{role}" if steps[role] else "http://127.0.0.1:1",
                api_key=KEY,
                model=NAMES[role],
                idle_timeout_seconds=0.3,
                max_attempts=2,
                parameters=parameters or ModelParameters(),
            )
            return RoutedModel(role=role, endpoint=f"{role} endpoint", route=route)

        routes = TurnRoutes(
            main=routed("main_model"),
            small=routed("small_model") if "small_model" in steps else None,
            fallbacks=tuple(routed(role) for role in steps if role.startswith("fallback")),
        )
        events: list[dict[str, Any]] = []

        async def spent() -> None:
            events.append({"type": "spent"})

        calls = ModelCalls(
            broker=broker,
            models=Turnout(routes, NAMES["main_model"], NAMES["small_model"]),
            spending=Spending(routes.all, shipped_prices()),
            ends_at=time.monotonic() + seconds,
            max_total_tokens=None,
            on_call=lambda event, usage: events.append(event),
            on_text=lambda text: None,
            on_spent=spent,
        )
        yield Turn(calls, models, events)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (answers(529), "was overloaded"),
        (answers(503), "was overloaded"),
        (answers(429), "took no more requests"),
        (answers(500), "failed"),
        (Step(stall="before_first_byte"), "did not answer"),
        (Step(text="I was about to", stall="mid_stream"), "fell silent"),
        (Step(text="I was about to", malformed="cut"), "broke off"),
        (None, "could not be reached"),
    ],
    ids=["529", "503", "429", "500", "no answer", "silence", "cut", "no connection"],
)
async def test_another_model_answers_when_the_main_one_does_not(fault: Step | None, words: str) -> None:
    async with turn({"main_model": [fault] if fault else [], "fallback_model": [well()]}) as one:
        replies = [await one.ask() for _ in range(3)]
        assert [reply.status for reply in replies] == [200] * 3
        assert one.asked("main_model") == (2 if fault else 0), "after its own attempts it is left alone"
        assert one.asked("fallback_model") == 3
        assert one.calls.remarks == [f"The model 'claude-sonnet-4-5' {words}; 'claude-opus-4-5' answered in its place."]
        assert [event["type"] for event in one.events] == ["warning", "model_call", "model_call", "model_call"]
        assert {event.get("model") for event in one.events[1:]} == {"claude-opus-4-5"}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
async def test_what_another_model_cannot_better_is_the_answer(status: int) -> None:
    async with turn({"main_model": [answers(status)], "fallback_model": [well()]}) as one:
        reply = await one.ask()
        assert (reply.status, one.asked("fallback_model"), one.calls.remarks) == (status, 0, [])
        assert f"answered {status}" in one.calls.failure


async def test_what_a_sandbox_may_not_ask_it_may_ask_nobody() -> None:
    async with turn({"main_model": [well()], "fallback_model": [well()]}) as one:
        body = json.dumps({"model": "m", "mcp_servers": [{"url": "https://example.com"}], "messages": []}).encode()
        reply = await one.calls.answer(ModelRequest("c", "/v1/messages", {}, body))
        assert (reply.status, one.asked("main_model"), one.asked("fallback_model")) == (403, 0, 0)


async def test_fallbacks_are_asked_in_their_order_and_a_badly_set_up_one_is_passed_over() -> None:
    async with turn({"main_model": [answers(529)], "fallback_model": [answers(401)], "fallback_model_2": [well()]}) as one:
        assert (await one.ask()).status == 200
        assert one.calls.remarks == [
            "The model 'claude-sonnet-4-5' was overloaded; 'ours' answered in its place.",
            "The model 'claude-opus-4-5' could not help (unauthorized); 'ours' answered in its place.",
        ]


async def test_when_nobody_answers_the_main_models_fault_is_told_and_all_are_named() -> None:
    async with turn({"main_model": [answers(529)], "fallback_model": [answers(500)]}) as one:
        assert [(await one.ask()).status for _ in range(2)] == [529, 529]
        assert (one.asked("main_model"), one.asked("fallback_model")) == (4, 4), "who rests is asked when nobody else is left"
        assert "the endpoint of 'claude-sonnet-4-5' answered 529" in one.calls.failure
        assert "the endpoint of 'claude-opus-4-5' answered 500" in one.calls.failure
        assert one.calls.remarks == []


async def test_a_fallbacks_refusal_reaches_the_cli_which_can_ask_in_plainer_words() -> None:
    async with turn({"main_model": [answers(529)], "fallback_model": [answers(400), well()]}) as one:
        assert [(await one.ask()).status for _ in range(2)] == [400, 200]


async def test_small_tasks_are_done_by_the_small_model_else_by_the_main_one() -> None:
    steps = {"main_model": [well()], "small_model": [well(), answers(529)], "fallback_model": [well()]}
    async with turn(steps) as one:
        for name in (NAMES["small_model"], "claude-haiku-of-the-clis-choice", NAMES["main_model"], "claude-other"):
            await one.ask(name)
        assert [event["model"] for event in one.events if event["type"] == "model_call"] == [
            "claude-haiku-4-5",
            "claude-sonnet-4-5",
            "claude-sonnet-4-5",
            "claude-sonnet-4-5",
        ]
        assert one.calls.remarks == ["The model 'claude-haiku-4-5' was overloaded; 'claude-sonnet-4-5' answered in its place."]
    async with turn({"main_model": [well()], "small_model": [answers(401)]}) as one:
        assert (await one.ask("claude-haiku-4-5")).status == 200
        assert one.calls.remarks == [
            "The model 'claude-haiku-4-5' could not help (unauthorized); 'claude-sonnet-4-5' answered in its place."
        ]
    async with turn({"main_model": [well()]}) as one:
        assert (await one.ask("claude-haiku-4-5")).body["model"] == "claude-sonnet-4-5"


async def test_each_model_has_its_account() -> None:
    """$3 and $15 per million for the main one, $5 and $25 for the fallback, $1 and $5 for the small one."""
    steps = {"main_model": [well(), answers(529)], "small_model": [well()], "fallback_model": [well()]}
    async with turn(steps) as one:
        for name in (NAMES["main_model"], NAMES["small_model"], NAMES["main_model"]):
            await one.ask(name)
        used = Usage(model_calls=1, input_tokens=1000, output_tokens=100)
        assert [(model.role, model.endpoint, model.usage, model.cost) for model in one.spending.models] == [
            ("main_model", "main_model endpoint", used, "0.004500"),
            ("small_model", "small_model endpoint", used, "0.001500"),
            ("fallback_model", "fallback_model endpoint", used, "0.007500"),
        ]
        assert (one.spending.cost, one.spending.currency, one.spending.usage.total_tokens) == ("0.013500", "USD", 3300)


async def test_a_model_without_a_price_makes_the_cost_unknown_and_not_nothing() -> None:
    async with turn({"main_model": [answers(529)], "fallback_model_2": [well()]}) as one:
        await one.ask()
        assert [(model.model, model.cost) for model in one.spending.models] == [("ours", None)]
        assert one.spending.cost is None


async def test_tokens_of_broken_streams_are_paid_for() -> None:
    """The stream told 1000 tokens before it was cut; the second attempt answers."""
    async with turn({"main_model": [Step(text="Half of", usage=USED, malformed="cut"), well()]}) as one:
        assert (await one.ask()).status == 200
        [model] = one.spending.models
        assert model.usage.model_calls == 1
        assert model.usage.input_tokens == 2000
        assert model.lost_tokens >= 1000
        assert one.spending.cost is not None
        assert 0.0075 <= float(one.spending.cost) < 0.0090, "twice the request, and as much of the answer as was told"


async def test_whoever_takes_the_turn_over_has_the_same_account() -> None:
    """The charges travel beside the answers, through JSON, as the message log keeps them."""
    steps = {"main_model": [Step(text="Half of", usage=USED, malformed="cut"), answers(529)], "fallback_model": [well()]}
    async with turn(steps) as one:
        for _ in range(2):
            await one.ask()
        kept = json.loads(json.dumps([reply.beside for reply in one.replies]))
        charges = [Charge.model_validate(charge) for beside in kept for charge in beside.get("charges", ())]
        again = Spending(one.calls.models.routes.all, shipped_prices(), charges)
        assert (again.models, again.cost, again.usage) == (one.spending.models, one.spending.cost, one.spending.usage)
        assert [text for beside in kept for text in beside.get("remarks", ())] == one.calls.remarks
        assert KEY.get_secret_value() not in repr(one.replies)


async def test_a_parameter_the_model_cannot_have_is_told_once() -> None:
    async with turn({"main_model": [well()]}, parameters=ModelParameters(temperature=0.5, top_p=0.5)) as one:
        for _ in range(2):
            await one.ask()
        assert one.calls.remarks == ["The model 'claude-sonnet-4-5': top_p of the model was left out because temperature is set."]


async def test_a_model_that_hangs_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share is half of what is left of the turn."""
    monkeypatch.setattr("orchestration_service.fallbacks._LEAST_SECONDS", 0.1)
    async with turn({"main_model": [Step(text="x" * 400, chunk_delay_seconds=0.2)], "fallback_model": [well()]}, seconds=2.0) as one:
        assert (await one.ask()).status == 200
        assert one.calls.remarks == ["The model 'claude-sonnet-4-5' took too long; 'claude-opus-4-5' answered in its place."]
