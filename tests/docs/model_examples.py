"""What docs/models.md shows, held against what the service makes of it."""

import json
from pathlib import Path

import anyio
from pydantic import SecretStr

from orchestration_service.model_routes import ModelRoutes, TurnRoutes
from orchestration_service.platform_keys import is_model_key
from orchestration_service.prices import read_prices
from tests.docs.examples import Example
from tests.orchestration_service.turns import INSTANCE, plan, sample
from workflow_schemas.platform import CompletionRequest

_GOOGLE = {
    "type": "service_account",
    "project_id": "p",
    "client_email": "a@p",
    "private_key": "k",
    "token_uri": "https://oauth2.googleapis.com/token",
}


def lead_to_a_model(example: Example, _: Path, *, value: str = "sk-example") -> None:
    """An endpoint configuration: the service can call a model there, once the keys it names have values."""
    endpoint = json.loads(example.text)
    body = sample()
    object_id = next(name for name in body["objects"] if "apiEndpointConfigurations" in name)
    body["objects"][object_id] = endpoint
    routes = anyio.run(_routes, body, value)
    assert routes.remarks == ()
    assert routes.main.endpoint == endpoint["name"]


def refer_to_models(example: Example, _: Path) -> None:
    """A tool that refers to further models: each is found, and nothing is remarked."""
    tool = json.loads(example.text)
    body = sample()
    body["agent"]["tools"] = [tool]
    model = next(value for name, value in body["objects"].items() if "aiModels" in name)
    tool["resource_object_ids"] = {
        name.replace("/instances/INSTANCE/providers", INSTANCE): one for name, one in tool["resource_object_ids"].items()
    }
    for name, reference in tool["resource_object_ids"].items():
        reference["object_id"] = name
        body["objects"][name] = {**model, "object_id": name, "deployment_name": name.rpartition("/")[2]}
    models = plan(CompletionRequest.model_validate(body)).models
    assert models.remarks == ()
    assert models.small is not None
    assert len(models.fallbacks) == len(tool["resource_object_ids"]) - 1


def hold_a_key_of_aws(example: Example, folder: Path) -> None:
    """The value behind the name of a key."""
    endpoint = {
        "name": "Bedrock",
        "provider": "bedrock",
        "url": "https://bedrock-runtime.eu-west-1.amazonaws.com",
        "authentication_parameters": {"api_key_configuration_name": "FoundationaLLM:APIEndpoints:Bedrock:Essentials:APIKey"},
    }
    lead_to_a_model(example._replace(text=json.dumps(endpoint)), folder, value=example.text)


def price_models(example: Example, _: Path) -> None:
    """A table of prices."""
    read_prices(example.text, str(example))


async def _routes(body: dict[str, object], value: str) -> TurnRoutes:
    async def keys(name: str) -> SecretStr | None:
        assert is_model_key(name), f"the store would not give {name!r} out"
        return SecretStr(json.dumps(_GOOGLE) if name.endswith("ServiceAccountCredentials") else value)

    return await ModelRoutes(keys=keys).of_turn(plan(CompletionRequest.model_validate(body)), "ann@example.com")
