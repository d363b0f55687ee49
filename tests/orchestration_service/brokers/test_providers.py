"""One behaviour, whoever provides the model: each stand-in checks that provider's proof and speaks in its frames."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.brokers.call import ModelAnswer, ModelCall, ModelDelta, Restarted, TextDelta
from orchestration_service.brokers.model import ModelBroker
from orchestration_service.brokers.route import ModelRoute
from tests.orchestration_service.brokers.standins.places import OTHER_PROOFS, PROVIDERS, Maker, Place
from tests.orchestration_service.brokers.standins.provider import MODEL, TEXT
from workflow_schemas.usage import Usage

pytestmark = pytest.mark.anyio

BODY = {"model": "asked", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "stream": True}
BETAS = "interleaved-thinking-2025-05-14,context-management-2025-06-27"


@asynccontextmanager
async def reached(maker: Maker, patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[tuple[Place, ModelBroker]]:
    """Serve a place and open a broker with short waits."""
    async with maker(patch, folder) as place, ModelBroker(first_wait_seconds=0.01) as broker:
        yield place, broker


async def ask(
    place: Place, broker: ModelBroker, deltas: list[ModelDelta] | None = None, call: ModelCall | None = None, **fields: Any
) -> ModelAnswer:
    """Ask once, by the right route but for these fields."""
    shape = {"model": MODEL, "idle_timeout_seconds": 0.5, "max_attempts": 3, **place.right, **fields}
    asked = call or ModelCall(json.dumps(BODY).encode(), path="/v1/messages", anthropic_beta=BETAS, deadline_seconds=20)
    return await broker.complete(ModelRoute.model_validate(shape), asked, None if deltas is None else deltas.append)


@pytest.fixture(scope="module", params=PROVIDERS)
async def shared_way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Place, ModelBroker]]:
    """One way to each provider, for all tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        async with reached(PROVIDERS[request.param], patch, tmp_path_factory.mktemp("way")) as way:
            yield way


@pytest.fixture
def way(shared_way: tuple[Place, ModelBroker]) -> tuple[Place, ModelBroker]:
    """A way that nobody has gone yet."""
    place, broker = shared_way
    place.provider.plan.clear()
    place.provider.asked.clear()
    assert broker._clients is not None
    broker._clients._lines.clear()
    return shared_way


@pytest.mark.parametrize("name", [*PROVIDERS, *OTHER_PROOFS])
async def test_a_right_proof_gets_an_answer_in_pieces_and_a_wrong_one_a_refusal_without_secrets(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    maker = {**PROVIDERS, **OTHER_PROOFS}[name]
    caplog.set_level("INFO", "httpcore")
    caplog.set_level("DEBUG")
    async with reached(maker, monkeypatch, tmp_path) as (place, broker):
        deltas: list[ModelDelta] = []
        answer = await ask(place, broker, deltas)
        assert (answer.status, answer.reason, answer.attempts) == (200, "answered", 1), answer
        assert answer.message is not None
        assert answer.message["content"] == [{"type": "text", "text": TEXT}]
        assert answer.usage == Usage(model_calls=1, input_tokens=30, output_tokens=7)
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == TEXT
        assert len(deltas) == 3
        refused = await ask(place, broker, **place.wrong)
        assert (refused.reason, refused.attempts, refused.message) == ("unauthorized", 1, None), refused
        told = f"{answer!r} {refused!r} {caplog.text}"
        assert not [secret for secret in place.secrets if secret in told]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("throttle", "rate_limited"),
        ("overload", "overloaded"),
        ("fail_inside", "overloaded"),
        ("cut", "cut"),
        ("damage", "malformed"),
        ("hang", "no_answer"),
        ("hang_inside", "stalled"),
    ],
)
async def test_what_passes_is_asked_again(way: tuple[Place, ModelBroker], behaviour: str, reason: str) -> None:
    place, broker = way
    place.provider.plan[:] = [behaviour]
    deltas: list[ModelDelta] = []
    answer = await ask(place, broker, deltas)
    assert (answer.ok, answer.attempts) == (True, 2), answer
    assert [delta.reason for delta in deltas if isinstance(delta, Restarted)] == [reason]
    assert answer.lost_usage.input_tokens == (30 if behaviour in ("fail_inside", "cut", "damage", "hang_inside") else 0)


async def test_a_model_that_is_not_there_is_said_so(way: tuple[Place, ModelBroker]) -> None:
    place, broker = way
    answer = await ask(place, broker, model="claude-of-tomorrow")
    assert (answer.status, answer.reason, answer.attempts) == (404, "refused", 1)
    assert answer.error is not None
    assert answer.error["error"] == {"type": "not_found_error", "message": "there is no model claude-of-tomorrow"}
    assert answer.request_id in ("req_1", None)


async def test_tokens_are_counted(way: tuple[Place, ModelBroker]) -> None:
    place, broker = way
    call = ModelCall(json.dumps(BODY).encode(), path="/v1/messages/count_tokens")
    answer = await ask(place, broker, call=call)
    assert answer.message == {"input_tokens": 10}, answer


async def test_parameters_are_sent_and_beta_names_go_where_the_provider_looks(way: tuple[Place, ModelBroker]) -> None:
    place, broker = way
    assert (await ask(place, broker, parameters={"temperature": 0.5, "top_k": 3})).ok
    asked = place.provider.asked[0]
    assert (asked.body["temperature"], asked.body["top_k"], asked.body["messages"]) == (0.5, 3, BODY["messages"])
    assert asked.body.get("anthropic_beta", BETAS.split(",")) == BETAS.split(",")
    assert asked.headers.get("anthropic-beta", BETAS) == BETAS
    assert "anthropic_beta" in asked.body or "anthropic-beta" in asked.headers


async def test_a_parameter_that_is_refused_by_name_is_left_out_from_then_on(way: tuple[Place, ModelBroker]) -> None:
    place, broker = way
    place.provider.plan[:] = ["`temperature` is deprecated for this model."]
    parameters = {"temperature": 0.5, "top_k": 3}
    first = await ask(place, broker, parameters=parameters)
    second = await ask(place, broker, parameters=parameters)
    assert [answer.attempts for answer in (first, second)] == [2, 1]
    assert ["temperature" in asked.body for asked in place.provider.asked] == [True, False, False]
    assert all(asked.body["top_k"] == 3 for asked in place.provider.asked)
    for answer in (first, second):
        assert "temperature was left out because the model's endpoint refuses it" in answer.remarks


async def test_a_refusal_that_names_nothing_is_final(way: tuple[Place, ModelBroker]) -> None:
    place, broker = way
    place.provider.plan[:] = ["messages.0: the content is missing"]
    answer = await ask(place, broker, parameters={"temperature": 0.5})
    assert (answer.status, answer.reason, answer.attempts) == (400, "refused", 1)
