"""What stands between a route and its provider: the official clients, their environment, identities, and how it is all kept."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anthropic import AsyncAnthropicBedrock, AsyncAnthropicVertex
from anthropic._models import FinalRequestOptions

from orchestration_service.brokers.call import ModelCall
from orchestration_service.brokers.model import ModelBroker
from orchestration_service.brokers.request import UpstreamRequest, prepare
from orchestration_service.brokers.route import ModelRoute
from orchestration_service.scripted.endpoint import serve
from tests.orchestration_service.brokers.standins.bedrock import Bedrock
from tests.orchestration_service.brokers.standins.places import OTHER_PROOFS, PROVIDERS, Place
from tests.orchestration_service.brokers.standins.provider import MODEL
from tests.orchestration_service.brokers.test_providers import BODY, ask, reached

pytestmark = pytest.mark.anyio

BETAS = "a-1,b-2"
BEDROCK = {"provider": "bedrock", "region": "us-east-1", "api_key": "k-12345678"}
VERTEX = {"provider": "vertex", "region": "global", "project": "p", "credential": {"kind": "google_identity"}}
STRAYS: Mapping[str, str] = {
    "ANTHROPIC_API_KEY": "stray-of-the-environment",
    "ANTHROPIC_AUTH_TOKEN": "stray-of-the-environment",
    "ANTHROPIC_BASE_URL": "http://stray.invalid",
    "ANTHROPIC_CUSTOM_HEADERS": "x-stray: stray-of-the-environment",
    "ANTHROPIC_FOUNDRY_API_KEY": "stray-of-the-environment",
    "ANTHROPIC_VERTEX_PROJECT_ID": "stray",
    "AWS_BEARER_TOKEN_BEDROCK": "stray-of-the-environment",
    "AWS_REGION": "stray-1",
    "CLOUD_ML_REGION": "stray-1",
}


def prepared(fields: dict[str, Any], path: str) -> UpstreamRequest:
    """Write a request down for a route."""
    call = ModelCall(json.dumps(BODY).encode(), path=path, anthropic_beta=BETAS)
    request = prepare(ModelRoute.model_validate({**fields, "model": MODEL}), call)
    assert isinstance(request, UpstreamRequest)
    return request


@pytest.mark.parametrize("name", ["bedrock", "vertex", "vertex_count"])
async def test_requests_are_written_as_the_official_clients_write_them(name: str) -> None:
    """A client changes the body itself; we do it before, once. This tells when the two drift apart."""
    path = "/v1/messages/count_tokens" if name == "vertex_count" else "/v1/messages"
    clients = {
        "bedrock": AsyncAnthropicBedrock(aws_region="us-east-1", api_key="k"),
        "vertex": AsyncAnthropicVertex(region="global", project_id="p", access_token="t"),
    }
    sent = {name: value for name, value in BODY.items() if name != "stream" or path == "/v1/messages"}
    options = FinalRequestOptions.construct(method="post", url=path, json_data={**sent, "model": MODEL}, headers={"anthropic-beta": BETAS})
    theirs = await clients[name.partition("_")[0]]._prepare_options(options)
    ours = prepared(BEDROCK if name == "bedrock" else VERTEX, path)
    body = json.loads(ours.content)
    if name != "bedrock":
        assert body.pop("anthropic_beta") == BETAS.split(",")  # theirs is the header alone, which some names need and others not
        body.pop("stream") if path != "/v1/messages" else None
        assert ours.headers["anthropic-beta"] == BETAS
    assert (ours.path, body) == (theirs.url, theirs.json_data)


@pytest.mark.parametrize("name", [*PROVIDERS, "gateway_bearer", "bedrock_identity"])
async def test_nothing_of_the_environment_takes_part(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The strays would be sent to a stranger, or would keep the client from being made; each stand-in refuses what it does not expect."""
    for variable, value in STRAYS.items():
        monkeypatch.setenv(variable, value)
    async with reached({**PROVIDERS, **OTHER_PROOFS}[name], monkeypatch, tmp_path) as (place, broker):
        answer = await ask(place, broker)
        assert answer.ok, answer
        assert "stray" not in f"{place.provider.asked[0].headers}"


async def test_a_gateway_without_a_key_gets_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, value in STRAYS.items():
        monkeypatch.setenv(variable, value)
    async with reached(PROVIDERS["gateway"], monkeypatch, tmp_path) as (place, broker):
        answer = await ask(place, broker, api_key=None)
        assert answer.reason == "unauthorized"
        assert "None is not accepted; besides there were []" in str(answer.error)


@pytest.mark.parametrize("name", ["foundry_entra", "bedrock_role", "vertex"])
async def test_an_identity_is_asked_once_for_many_calls(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with reached({**PROVIDERS, **OTHER_PROOFS}[name], monkeypatch, tmp_path) as (place, broker):

        async def one() -> None:
            assert (await ask(place, broker)).ok

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(one)
        asked = place.issuer.asked
        assert (asked if isinstance(asked, int) else len(asked)) == 1


async def test_a_token_that_is_refused_is_not_used_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with reached(PROVIDERS["vertex"], monkeypatch, tmp_path) as (place, broker):
        assert (await ask(place, broker)).ok
        place.issuer.tokens.clear()
        assert (await ask(place, broker)).reason == "unauthorized"
        assert (await ask(place, broker)).ok


@pytest.mark.parametrize("name", ["bedrock_role", "vertex"])
async def test_an_issuer_that_is_away_is_asked_again_and_said_so(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with reached({**PROVIDERS, **OTHER_PROOFS}[name], monkeypatch, tmp_path) as (place, broker):
        nowhere = "http://127.0.0.1:9"
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", nowhere)
        answer = await ask(place, broker, max_attempts=2, **_elsewhere(place, nowhere))
        assert (answer.reason, answer.attempts, answer.ok) == ("unreachable", 2, False), answer


def _elsewhere(place: Place, address: str) -> dict[str, Any]:
    credential = place.right["credential"]
    if "key_json" not in credential:
        return {}
    return {"credential": {**credential, "key_json": json.dumps({**json.loads(credential["key_json"]), "token_uri": address})}}


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("foundry_entra", "entra_identity", "azure"),
        ("bedrock", "aws_frames", "bedrock"),
        ("vertex", "google_identity", "vertex"),
    ],
)
async def test_what_is_not_installed_is_named(name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, f"orchestration_service.brokers.{module}", None)
    async with reached({**PROVIDERS, **OTHER_PROOFS}[name], monkeypatch, tmp_path) as (place, broker):
        answer = await ask(place, broker)
        assert (answer.status, answer.attempts) == (502, 1)
        assert f"the extra {extra!r}" in str(answer.error)


async def test_a_name_with_slashes_is_signed_as_it_is_sent() -> None:
    """An inference profile's name has them; the path is encoded once for the wire and once more for the signature."""
    model = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc"
    provider = Bedrock(keys={"AKIA0000": ("secret-0123456789", None)})
    async with serve(provider) as endpoint, ModelBroker() as broker:
        keys = {"kind": "aws_keys", "access_key_id": "AKIA0000", "secret_access_key": "secret-0123456789"}
        route = {"provider": "bedrock", "region": provider.region, "base_url": endpoint.base_url, "credential": keys, "model": model}
        answer = await broker.complete(ModelRoute.model_validate(route), ModelCall(json.dumps(BODY).encode()))
    assert answer.error is not None
    assert answer.error["error"]["message"] == f"there is no model {model}"  # so it was accepted, and read back


async def test_what_a_strict_endpoint_minds_is_found_out_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusals = [
        "invalid beta flag",
        "context_management: Extra inputs are not permitted",
        "messages.0.output_config: Extra inputs are not permitted",
    ]
    message = {**BODY["messages"][0], "output_config": {"effort": "low"}}  # type: ignore[index]
    body = {**BODY, "messages": [message], "context_management": {"edits": []}}
    call = ModelCall(json.dumps(body).encode(), anthropic_beta=BETAS)
    async with reached(PROVIDERS["bedrock"], monkeypatch, tmp_path) as (place, broker):
        place.provider.plan[:] = refusals
        answers = [await ask(place, broker, call=call), await ask(place, broker, call=call)]
        assert [(answer.ok, answer.attempts, len(answer.remarks)) for answer in answers] == [(True, 4, 3), (True, 1, 3)]
        assert place.provider.asked[-1].body["messages"] == BODY["messages"]


async def test_lines_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with reached(PROVIDERS["anthropic"], monkeypatch, tmp_path) as (place, broker):
        for number in range(140):
            await ask(place, broker, model=f"m{number}")
        assert broker._clients is not None
        lines = broker._clients._lines
        first = next(iter(lines.values()))
        assert len(lines) == 128
        await ask(place, broker, model="m12")
        assert next(reversed(lines.values())) is first


async def test_a_request_that_cannot_be_sent_is_an_answer() -> None:
    """An address that no HTTP library takes is a fault of the route's, not of the call's."""
    async with ModelBroker(transport=httpx.MockTransport(lambda request: httpx.Response(200))) as broker:
        route = ModelRoute(base_url="http://[::1]]", model="m", max_attempts=1)
        answer = await broker.complete(route, ModelCall(json.dumps(BODY).encode()))
    assert (answer.status, answer.reason) == (502, "unreachable")
