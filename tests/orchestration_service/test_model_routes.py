"""From real requests to routes: each provider, each kind of authentication, and what is refused with the remedy."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from orchestration_service.brokers.route import ModelRoute
from orchestration_service.errors import PlanRefused, SettingsError
from orchestration_service.model_routes import ModelRoutes, TurnRoutes
from orchestration_service.platform_keys import is_model_key
from tests.orchestration_service.test_model_choice import add_model
from tests.orchestration_service.turns import INSTANCE, plan, sample
from workflow_schemas.platform import CompletionRequest

pytestmark = pytest.mark.anyio

ENDPOINT = f"{INSTANCE}/FoundationaLLM.Configuration/apiEndpointConfigurations/AnthropicAPI"
ESSENTIALS = "FoundationaLLM:APIEndpoints:Claude:Essentials"
AWS_KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": "aws-secret-value", "session_token": "aws-session-value"}
GOOGLE_KEY = {
    "type": "service_account",
    "project_id": "our-project",
    "client_email": "claude@our-project.iam.gserviceaccount.com",
    "private_key": "-----BEGIN PRIVATE KEY-----\nnot-a-real-one\n-----END PRIVATE KEY-----\n",
    "token_uri": "https://oauth2.googleapis.com/token",
}
ARN = "arn:aws:iam::123456789012:role/claude"
SECRETS: dict[str, str] = {
    f"{ESSENTIALS}:APIKey": "sk-secret-value",
    f"{ESSENTIALS}:AccessKey": AWS_KEYS["access_key_id"],
    f"{ESSENTIALS}:SecretKey": AWS_KEYS["secret_access_key"],
    f"{ESSENTIALS}:RoleArn": ARN,
    f"{ESSENTIALS}:Scope": "api://our-app/.default",
    f"{ESSENTIALS}:ServiceAccountCredentials": json.dumps(GOOGLE_KEY),
    "aws-as-json": json.dumps(AWS_KEYS),
}
KEY = {"api_key_configuration_name": f"{ESSENTIALS}:APIKey"}


async def keys(name: str) -> SecretStr | None:
    return SecretStr(SECRETS[name]) if name in SECRETS else None


def request(**endpoint: Any) -> dict[str, Any]:
    """The platform's request, its model behind another endpoint."""
    body = sample()
    body["objects"][ENDPOINT] |= {"name": "Claude", **endpoint}
    return body


async def routes_of(body: dict[str, Any], upn: str = "ann@example.com", **configured: Any) -> TurnRoutes:
    planned = plan(CompletionRequest.model_validate(body))
    return await ModelRoutes(**{"keys": keys, **configured}).of_turn(planned, upn)


async def route_to(provider: str, url: str, parameters: dict[str, Any], kind: str = "APIKey", **more: Any) -> ModelRoute:
    body = request(provider=provider, url=url, authentication_type=kind, authentication_parameters=parameters, **more)
    return (await routes_of(body)).main.route


def key_of(route: ModelRoute) -> str:
    """The key and its place, as a header is written."""
    assert route.api_key is not None
    return f"{route.api_key_header}: {route.api_key_prefix} {route.api_key.get_secret_value()}".replace("  ", " ")


FOUNDRY = "https://our-resource.services.ai.azure.com"
BEDROCK = "https://bedrock-runtime.eu-west-1.amazonaws.com"
VERTEX = "https://europe-west1-aiplatform.googleapis.com"


@pytest.mark.parametrize(
    ("provider", "url", "parameters", "kind", "expected"),
    [
        (
            "anthropic",
            "https://api.anthropic.com/v1",
            KEY,
            "APIKey",
            ("anthropic", "https://api.anthropic.com", "x-api-key: sk-secret-value"),
        ),
        ("", "", KEY, "", ("anthropic", "https://api.anthropic.com", "x-api-key: sk-secret-value")),
        (
            "anthropic-compatible",
            "https://gateway.example.com/claude",
            KEY | {"api_key_header_name": "Authorization", "api_key_prefix": "Bearer"},
            "APIKey",
            ("anthropic-compatible", "https://gateway.example.com/claude", "Authorization: Bearer sk-secret-value"),
        ),
        (
            "azureai",
            FOUNDRY,
            KEY | {"api_key_header_name": "api-key"},
            "APIKey",
            ("foundry", f"{FOUNDRY}/anthropic", "api-key: sk-secret-value"),
        ),
        ("microsoft", f"{FOUNDRY}/anthropic", KEY, "APIKey", ("foundry", f"{FOUNDRY}/anthropic", "x-api-key: sk-secret-value")),
        ("", FOUNDRY, KEY, "APIKey", ("foundry", f"{FOUNDRY}/anthropic", "x-api-key: sk-secret-value")),
        ("bedrock", BEDROCK, KEY, "APIKey", ("bedrock", BEDROCK, "x-api-key: sk-secret-value")),
    ],
    ids=["anthropic", "nothing said", "gateway", "foundry", "microsoft is foundry", "the address says foundry", "bedrock API key"],
)
async def test_a_key_leads_to_its_provider(
    provider: str, url: str, parameters: dict[str, Any], kind: str, expected: tuple[Any, ...]
) -> None:
    route = await route_to(provider, url, parameters, kind)
    assert (route.provider, route.base_url, key_of(route)) == expected
    assert route.model == "claude-sonnet-4-5"
    assert route.parameters.temperature == 0


@pytest.mark.parametrize(
    ("provider", "url", "parameters", "kind", "credential"),
    [
        ("azureai", FOUNDRY, {}, "AzureIdentity", {"kind": "entra", "scope": "https://ai.azure.com/.default"}),
        ("azureai", FOUNDRY, {"scope": "api://own/.default"}, "AzureIdentity", {"kind": "entra", "scope": "api://own/.default"}),
        (
            "anthropic-compatible",
            "https://gateway.example.com",
            {"scope": "api://g/.default"},
            "AzureIdentity",
            {"kind": "entra", "scope": "api://g/.default"},
        ),
        (
            "bedrock",
            BEDROCK,
            {"role_arn": f"{ESSENTIALS}:RoleArn", "scope": f"{ESSENTIALS}:Scope"},
            "AzureIdentity",
            {"kind": "aws_role", "role_arn": ARN, "scope": "api://our-app/.default"},
        ),
        ("bedrock", BEDROCK, {"role_arn": ARN}, "AzureIdentity", {"kind": "aws_role", "role_arn": ARN}),
        ("bedrock", BEDROCK, {"identity": "aws"}, "AzureIdentity", {"kind": "aws_identity"}),
        (
            "bedrock",
            BEDROCK,
            {"access_key": f"{ESSENTIALS}:AccessKey", "secret_key": f"{ESSENTIALS}:SecretKey"},
            "APIKey",
            {"kind": "aws_keys", "access_key_id": "AKIAEXAMPLE", "secret_access_key": "aws-secret-value"},
        ),
        ("bedrock", BEDROCK, {"api_key_configuration_name": "aws-as-json"}, "APIKey", {"kind": "aws_keys", **AWS_KEYS}),
        ("vertexai", VERTEX, {"service_account_credentials": f"{ESSENTIALS}:ServiceAccountCredentials"}, "APIKey", {"kind": "google_key"}),
        ("vertexai", VERTEX, {"project": "our-project"}, "AzureIdentity", {"kind": "google_identity"}),
    ],
    ids=[
        "entra",
        "entra with scope",
        "gateway",
        "role behind keys",
        "role",
        "own aws",
        "access key",
        "aws JSON",
        "google key",
        "own google",
    ],
)
async def test_an_identity_leads_to_its_provider(
    provider: str, url: str, parameters: dict[str, Any], kind: str, credential: dict[str, str]
) -> None:
    route = await route_to(provider, url, parameters, kind)
    assert route.credential is not None
    held = {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in route.credential}
    assert held.items() >= credential.items()
    assert (route.region, route.google_project) == {
        "bedrock": ("eu-west-1", None),
        "vertexai": ("europe-west1", "our-project"),
    }.get(provider, (None, None))


async def test_a_whole_address_of_vertex_says_project_and_region() -> None:
    route = await route_to(
        "vertexai",
        "https://vertex.internal/v1/projects/another/locations/us-east5/publishers/anthropic",
        {"service_account_credentials": f"{ESSENTIALS}:ServiceAccountCredentials"},
    )
    assert (route.base_url, route.google_project, route.region) == ("https://vertex.internal", "another", "us-east5")


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ({"provider": "openai"}, ["'openai'", "'anthropic-compatible'", "/v1/messages"]),
        ({"provider": "microsoft", "url": "https://x.openai.azure.com"}, ["'microsoft'", "Azure OpenAI", "'azureai'"]),
        (
            {"provider": "azureai", "url": "https://x.openai.azure.com"},
            ["Azure OpenAI", "https://RESOURCE.services.ai.azure.com/anthropic"],
        ),
        ({"provider": "azureai", "url": ""}, ["no address", "services.ai.azure.com"]),
        ({"provider": "databricks"}, ["'databricks'", "'anthropic', 'anthropic-compatible', 'azureai'"]),
        ({"authentication_type": "AccountKey"}, ["'AccountKey'", "'APIKey' or 'AzureIdentity'"]),
        ({"authentication_type": "AzureIdentity"}, ["Anthropic takes keys only", "'APIKey'"]),
        ({"provider": "anthropic-compatible", "authentication_type": "AzureIdentity"}, ["no 'scope'"]),
        ({"provider": "bedrock", "url": BEDROCK, "authentication_type": "AzureIdentity"}, ["no 'role_arn'", "'identity'"]),
        ({"provider": "bedrock", "url": "https://bedrock.internal"}, ["region such as 'us-east-1'"]),
        ({"provider": "bedrock", "url": BEDROCK, "authentication_parameters": {}}, ["no 'api_key_configuration_name'"]),
        (
            {"provider": "bedrock", "url": BEDROCK, "authentication_parameters": {"access_key": f"{ESSENTIALS}:AccessKey"}},
            ["no 'secret_key'"],
        ),
        (
            {"provider": "bedrock", "url": BEDROCK, "authentication_parameters": {"access_key": "A", "secret_key": "B"}},
            ["no value for 'A'"],
        ),
        ({"provider": "vertexai", "url": VERTEX}, ["no JSON file of a service account"]),
        ({"provider": "vertexai", "url": VERTEX, "authentication_type": "AzureIdentity"}, ["Google Cloud project"]),
        ({"url": "ftp://models"}, ["base_url must be http(s)"]),
        ({"authentication_parameters": {"api_key_configuration_name": "unknown"}}, ["no value for 'unknown'", "administrator"]),
    ],
    ids=lambda value: "-".join(map(str, value.values()))[:40] if isinstance(value, dict) else None,
)
async def test_what_makes_no_sense_is_refused_with_what_to_change(endpoint: dict[str, Any], words: list[str]) -> None:
    body = request(**{"authentication_parameters": KEY, **endpoint})
    with pytest.raises(PlanRefused) as refused:
        await routes_of(body)
    assert [word for word in ("'Claude'", *words) if word not in str(refused.value)] == []


async def test_a_key_in_the_request_itself_is_no_key() -> None:
    """Whatever somebody writes there: what counts is what the operator has under a name."""
    body = request(authentication_parameters={"api_key": "sk-in-the-request", "key": "sk-in-the-request"})
    with pytest.raises(PlanRefused, match="There is no key"):
        await routes_of(body)
    body = request(authentication_parameters=KEY | {"api_key": "sk-in-the-request"})
    planned = plan(CompletionRequest.model_validate(body))
    found = await ModelRoutes(keys=keys).of_turn(planned, "ann@example.com")
    assert key_of(found.main.route) == "x-api-key: sk-secret-value"
    said = repr((planned, found)) + planned.plan.model_dump_json() + found.main.route.model_dump_json()
    assert "sk-secret-value" not in said


async def test_the_operators_default_key_never_goes_to_a_cloud() -> None:
    default = SecretStr("sk-default")
    kept = await routes_of(request(authentication_parameters={}), default_key=default)
    assert key_of(kept.main.route) == "x-api-key: sk-default"
    with pytest.raises(PlanRefused):
        await routes_of(request(provider="azureai", url=FOUNDRY, authentication_parameters={}), default_key=default)


async def test_the_operators_own_address_takes_the_place_of_every_endpoint() -> None:
    body = request(provider="azureai", url=FOUNDRY, authentication_type="AzureIdentity", authentication_parameters={})
    add_model(body, "claude-other", "fallback_model")
    found = await routes_of(body, default_key=SecretStr("sk-default"), base_url="http://gateway.internal")
    assert [model.route.base_url for model in found.all] == ["http://gateway.internal"] * 2
    assert [model.route.provider for model in found.all] == ["anthropic-compatible"] * 2


async def test_a_further_model_that_cannot_be_reached_is_told_and_the_others_are_used() -> None:
    body = request(authentication_parameters=KEY)
    for name, role in (("claude-tiny", "small_model"), ("claude-second", "fallback_model"), ("claude-third", "fallback_model_2")):
        add_model(body, name, role)
    broken = f"{INSTANCE}/FoundationaLLM.Configuration/apiEndpointConfigurations/claude-second"
    body["objects"][broken] |= {"provider": "openai"}
    found = await routes_of(body)
    assert [model.role for model in found.all] == ["main_model", "small_model", "fallback_model_2"]
    [remark] = found.remarks
    assert remark.startswith("The model 'claude-second' with the role 'fallback_model' is not used: The model endpoint 'claude-second' has")


async def test_a_developers_own_address_is_theirs_alone() -> None:
    exception = {"user_principal_name": "Ann@Example.com", "url": "https://ann.example.com", "enabled": True}
    body = request(authentication_parameters=KEY, url_exceptions=[exception])
    addresses = [(await routes_of(body, upn)).main.route.base_url for upn in ("ann@example.com", "bob@example.com")]
    assert addresses == ["https://ann.example.com", "https://api.anthropic.com"]


async def test_a_key_that_cannot_be_read_just_now_is_no_missing_key(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(name: str) -> SecretStr | None:
        raise SettingsError(f"{name} leads to a vault that does not answer", (name,))

    with pytest.raises(PlanRefused, match="cannot be read just now"):
        await routes_of(request(authentication_parameters=KEY), keys=failing)
    assert "a vault that does not answer" in caplog.text


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        *((f"{ESSENTIALS}:{name}", True) for name in ("APIKey", "AccessKey", "SecretKey", "SessionToken", "RoleArn", "Scope")),
        (f"{ESSENTIALS}:ServiceAccountCredentials", True),
        (f"{ESSENTIALS}:AppInsightsConnectionString", False),
        (f"{ESSENTIALS}:APIKey\n", False),
        ("FoundationaLLM:APIEndpoints:StateAPI:Essentials:SecretKey", False),
        ("FoundationaLLM:APIEndpoints:ClaudeCode:Essentials:APIKey", False),
    ],
)
def test_a_request_can_name_what_proves_a_models_endpoint_and_nothing_else(key: str, is_one: bool) -> None:
    assert is_model_key(key) == is_one


async def test_without_a_store_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only those that a model's endpoint may name: a request must not read variables of its choice."""
    monkeypatch.setenv("FoundationaLLM__APIEndpoints__Claude__Essentials__APIKey", "sk-nearby")
    monkeypatch.setenv("OTHER_SECRET", "never")
    found = await routes_of(request(authentication_parameters=KEY), keys=None)
    assert key_of(found.main.route) == "x-api-key: sk-nearby"
    with pytest.raises(PlanRefused, match="no value for 'OTHER_SECRET'"):
        await routes_of(request(authentication_parameters={"api_key_configuration_name": "OTHER_SECRET"}), keys=None)
