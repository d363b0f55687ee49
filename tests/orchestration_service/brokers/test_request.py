"""What a sandbox may ask of a model, and what becomes of it on the way."""

import json
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from orchestration_service.brokers.call import ModelCall
from orchestration_service.brokers.request import Refusal, UpstreamRequest, prepare
from orchestration_service.brokers.route import ModelParameters, ModelRoute

ROUTE = ModelRoute(base_url="http://gateway/prefix/v1/", api_key=SecretStr("k-12345678"), model="deployed")
BODY: dict[str, Any] = {"model": "asked", "max_tokens": 4000, "messages": [{"role": "user", "content": "hi"}]}


def prepared(body: dict[str, Any], route: ModelRoute = ROUTE, **call: Any) -> UpstreamRequest:
    """Prepare a request that must pass."""
    request = prepare(route, ModelCall(body=json.dumps(body).encode(), **call))
    assert isinstance(request, UpstreamRequest)
    return request


def test_model_and_stream_are_the_routes() -> None:
    request = prepared(BODY, path="/v1/messages?beta=true", anthropic_beta="a-1,b-2")
    assert request.path == "/v1/messages?beta=true"
    assert json.loads(request.content) == {**BODY, "model": "deployed", "stream": True}
    assert request.headers["anthropic-beta"] == "a-1,b-2"
    assert "X-Api-Key" not in request.headers  # the client of the provider adds it


def test_a_key_in_an_unusual_place_is_one_of_the_headers() -> None:
    route = ModelRoute(
        base_url="http://gateway", api_key=SecretStr("k-12345678"), api_key_header="X-Team-Key", api_key_prefix="Key", model="m"
    )
    request = prepared(BODY, route)
    assert request.headers["x-team-key"] == "Key k-12345678"
    assert "k-12345678" not in repr(request)


def test_counting_tokens_changes_nothing_but_the_model() -> None:
    route = ROUTE.model_copy(update={"parameters": ModelParameters(temperature=0, max_tokens=10)})
    request = prepared(BODY, route, path="/v1/messages/count_tokens")
    assert json.loads(request.content) == {**BODY, "model": "deployed"}
    assert not request.streams


def test_a_strict_gateway_gets_no_betas() -> None:
    route = ROUTE.model_copy(update={"forward_betas": False})
    request = prepared(BODY, route, path="/v1/messages?beta=true", anthropic_beta="a-1")
    assert request.path == "/v1/messages"
    assert "anthropic-beta" not in request.headers


def test_parameters_of_the_route_win() -> None:
    route = ROUTE.model_copy(update={"parameters": ModelParameters(temperature=0, top_p=0.5, top_k=3, max_tokens=100)})
    request = prepared({**BODY, "temperature": 1}, route)
    sent = json.loads(request.content)
    assert (sent["temperature"], sent["top_k"], sent["max_tokens"], "top_p" in sent) == (0, 3, 100, False)
    assert request.remarks == (
        "top_p of the model was left out because temperature is set",
        "max_tokens was lowered from 4000 to 100",
    )


def test_temperature_gives_way_to_thinking() -> None:
    route = ROUTE.model_copy(update={"parameters": ModelParameters(temperature=0)})
    request = prepared({**BODY, "thinking": {"type": "adaptive"}}, route)
    assert "temperature" not in json.loads(request.content)
    assert "uses thinking" in request.remarks[0]


@pytest.mark.parametrize(
    ("cap", "thinking"),
    [(3000, {"type": "enabled", "budget_tokens": 1500}), (1000, {"type": "disabled"})],
    ids=["smaller_budget", "no_room"],
)
def test_a_cap_leaves_a_budget_the_api_accepts(cap: int, thinking: dict[str, Any]) -> None:
    route = ROUTE.model_copy(update={"parameters": ModelParameters(max_tokens=cap)})
    request = prepared({**BODY, "thinking": {"type": "enabled", "budget_tokens": 3999}}, route)
    assert json.loads(request.content)["thinking"] == thinking


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    """Give a body with these blocks in its user message."""
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def nested(block: dict[str, Any], depth: int) -> dict[str, Any]:
    """Wrap a block into so many tool results."""
    for _ in range(depth):
        block = {"type": "tool_result", "content": [block]}
    return block


URL_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://elsewhere.example/?data=secret"}}


@pytest.mark.parametrize(
    ("extra", "call", "status"),
    [
        pytest.param({}, {"path": "/v1/files"}, 404, id="other_path"),
        pytest.param({}, {"path": "/v1/messages?beta=true&x=1"}, 404, id="other_query"),
        pytest.param({}, {"path": "/v1/messages/../files"}, 404, id="dots"),
        pytest.param({}, {"anthropic_beta": "a\r\nx-api-key: b"}, 400, id="header_injection"),
        pytest.param({}, {"anthropic_version": ""}, 400, id="no_version"),
        pytest.param({"mcp_servers": [{"type": "url", "url": "https://elsewhere.example"}]}, {}, 403, id="mcp"),
        pytest.param({"container": "container_1"}, {}, 403, id="container"),
        pytest.param({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {}, 403, id="web_search"),
        pytest.param({"tools": [{"type": "code_execution_20250825", "name": "x"}]}, {}, 403, id="code_execution"),
        pytest.param(user(URL_IMAGE), {}, 403, id="image_by_address"),
        pytest.param(user({"type": "document", "source": {"type": "file", "file_id": "f"}}), {}, 403, id="file"),
        pytest.param(user({"type": "tool_result", "content": [URL_IMAGE]}), {}, 403, id="image_in_result"),
        pytest.param(user({"type": "document", "source": {"type": "content", "content": [URL_IMAGE]}}), {}, 403, id="nested"),
        pytest.param(user(nested(URL_IMAGE, 300)), {}, 403, id="deeply_nested"),
        pytest.param({"system": [URL_IMAGE]}, {}, 403, id="system"),
        pytest.param({"tools": [{"type": "bash_code_execution_20990101", "name": "x"}]}, {}, 403, id="bash_of_theirs"),
        pytest.param(user({"type": "container_upload", "file_id": "f"}), {}, 403, id="container_upload"),
    ],
)
def test_what_a_sandbox_may_not_ask(extra: dict[str, Any], call: dict[str, Any], status: int) -> None:
    refused = prepare(ROUTE, ModelCall(body=json.dumps({**BODY, **extra}).encode(), **call))
    assert isinstance(refused, Refusal)
    assert refused.status == status


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000], ids=["none", "list", "cut", "bin", "deep"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    refused = prepare(ROUTE, ModelCall(body=body))
    assert isinstance(refused, Refusal)
    assert refused.status == 400


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({"tools": [{"name": "Read", "input_schema": {}}, {"type": "custom", "name": "x"}]}, id="own_tools"),
        pytest.param(user({"type": "image", "source": {"type": "base64", "data": ""}}), id="inline_image"),
        pytest.param(
            user({"type": "tool_use", "id": "t", "name": "Write", "input": {"source": {"type": "url"}}}),
            id="free_json_of_a_tool",
        ),
        pytest.param(user({"type": "search_result", "source": "a title"}), id="source_is_text"),
    ],
)
def test_what_the_agents_own_tools_need_passes(extra: dict[str, Any]) -> None:
    prepared({**BODY, **extra})


def test_an_administrator_may_allow_tools_of_the_provider() -> None:
    route = ROUTE.model_copy(update={"allow_server_tools": True})
    prepared({**BODY, "tools": [{"type": "web_search_20250305", "name": "web_search"}], **user(URL_IMAGE)}, route)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"base_url": "ftp://x"}, id="scheme"),
        pytest.param({"base_url": "https://user:k-12345678@x"}, id="credentials_in_address"),
        pytest.param({"base_url": "https://"}, id="no_host"),
        pytest.param({"api_key": "k-12345678\n"}, id="line_end_in_key"),
        pytest.param({"api_key": ""}, id="empty_key"),
        pytest.param({"headers": {"bad name": "x"}}, id="header_name"),
    ],
)
def test_a_route_that_cannot_work_is_refused_without_showing_the_key(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelRoute.model_validate({"model": "m", **fields})
    assert "k-12345678" not in str(caught.value)


KEYS = {"kind": "aws_keys", "access_key_id": "k-12345678", "secret_access_key": "s-12345678"}
GOOGLE_KEY = {"type": "service_account", "client_email": "a@b", "private_key": "k-12345678", "token_uri": "https://t", "project_id": "ours"}


FOUNDRY = "https://r.services.ai.azure.com"


@pytest.mark.parametrize(
    ("provider", "base_url", "region", "known_url", "known_region"),
    [
        ("bedrock", "", "eu-west-1", "https://bedrock-runtime.eu-west-1.amazonaws.com", "eu-west-1"),
        (
            "bedrock",
            "https://bedrock-runtime.us-east-1.amazonaws.com/",
            None,
            "https://bedrock-runtime.us-east-1.amazonaws.com",
            "us-east-1",
        ),
        ("bedrock", "https://x.bedrock-runtime.us-1.vpce.amazonaws.com", None, "https://x.bedrock-runtime.us-1.vpce.amazonaws.com", "us-1"),
        ("vertex", "", "global", "https://aiplatform.googleapis.com", "global"),
        ("vertex", "", "eu", "https://aiplatform.eu.rep.googleapis.com", "eu"),
        ("vertex", "https://us-east5-aiplatform.googleapis.com/v1", None, "https://us-east5-aiplatform.googleapis.com", "us-east5"),
        ("foundry", f"{FOUNDRY}/models", None, f"{FOUNDRY}/anthropic", None),
        ("foundry", f"{FOUNDRY}/anthropic/v1", None, f"{FOUNDRY}/anthropic", None),
        ("anthropic", "", None, "https://api.anthropic.com", None),
    ],
)
def test_what_a_route_does_not_say_follows_from_what_it_says(
    provider: str, base_url: str, region: str | None, known_url: str, known_region: str | None
) -> None:
    fields = {"provider": provider, "base_url": base_url, "region": region, "project": "p", "auth_token": "t", "model": "m"}
    route = ModelRoute.model_validate(fields)
    assert (route.base_url, route.region) == (known_url, known_region)


def test_the_project_of_vertex_is_that_of_the_key() -> None:
    credential = {"kind": "google_key", "key_json": json.dumps(GOOGLE_KEY)}
    route = ModelRoute.model_validate({"model": "m", "provider": "vertex", "region": "global", "credential": credential})
    assert route.google_project == "ours"
    assert "k-12345678" not in f"{route!r} {route.scrub('x k-12345678 y')}"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"provider": "foundry", "api_key": "k"}, "no address", id="no_address"),
        pytest.param({"provider": "foundry", "base_url": "https://r"}, "needs a key", id="no_proof"),
        pytest.param({"provider": "bedrock", "api_key": "k"}, "no address", id="no_region"),
        pytest.param({"provider": "bedrock", "base_url": "https://proxy", "api_key": "k"}, "needs a region", id="proxy_without_region"),
        pytest.param({"provider": "bedrock", "region": "r", "credential": {**KEYS, "secret_access_key": ""}}, "is empty", id="half_a_key"),
        pytest.param({"provider": "bedrock", "region": "r-1", "credential": {"kind": "entra"}}, "proves nothing", id="strange_identity"),
        pytest.param({"provider": "bedrock", "region": "r-1", "credential": KEYS, "api_key": "k"}, "both", id="two_proofs"),
        pytest.param({"provider": "vertex", "region": "global", "project": "p", "api_key": "k-12345678"}, "no API key", id="vertex_key"),
        pytest.param({"provider": "vertex", "region": "global", "auth_token": "k-12345678"}, "Google Cloud project", id="no_project"),
        pytest.param(
            {"provider": "vertex", "region": "g", "credential": {"kind": "google_key", "key_json": "{}"}},
            "no JSON file",
            id="no_google_key",
        ),
    ],
)
def test_a_route_that_lacks_something_says_what(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        ModelRoute.model_validate({"model": "m", **fields})
    assert "k-12345678" not in str(caught.value)


def test_a_route_never_prints_its_secrets() -> None:
    route = ModelRoute(model="m", api_key=SecretStr("k-12345678"), auth_token=SecretStr("t-12345678"), headers={"x-key": "h-12345678"})
    shown = f"{route!r} {route}"
    assert not any(secret in shown for secret in ("k-12345678", "t-12345678", "h-12345678"))
