"""From an endpoint configuration of the platform to a route: who answers there, and which keys it names. Pure.

The platform's texts for providers are `azureai`, `microsoft`, `openai`, `bedrock` and `vertexai`, and nobody checks them; Anthropic is not
among them (contract: orchestration §5.3). So where the text leaves it open, the address decides. What cannot serve Claude is refused in
words that say what to change.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from orchestration_service.brokers.route import Provider
from orchestration_service.errors import PlanRefused
from workflow_schemas.platform_request import EndpointConfiguration

Keys = Callable[[EndpointConfiguration, str], Awaitable[SecretStr | None]]
"""Finds the value behind a configuration key that an endpoint names; None where there is none."""

_BY_TEXT: Mapping[str, Provider] = {
    "anthropic": "anthropic",
    "anthropic-compatible": "anthropic-compatible",
    "azureai": "foundry",
    "foundry": "foundry",
    "bedrock": "bedrock",
    "vertexai": "vertex",
    "vertex": "vertex",
}
_AZURE_OPENAI = (".openai.azure.com", ".cognitiveservices.azure.com")
_BY_HOST: tuple[tuple[re.Pattern[str], Provider], ...] = (
    (re.compile(r".*\.services\.ai\.azure\.com\Z"), "foundry"),
    (re.compile(r"bedrock-runtime[.-].*"), "bedrock"),
    (re.compile(r"(.*-)?aiplatform\..*googleapis\.com\Z"), "vertex"),
)
_VERTEX_PATH = re.compile(r"(?P<base>.*?)/v1(?:beta1)?/projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)(?:/.*)?\Z")
_CHOICE = "Use 'anthropic', 'anthropic-compatible', 'azureai' (Microsoft Foundry), 'bedrock' or 'vertexai'."

Fields = dict[str, Any]


def provider_of(endpoint: EndpointConfiguration, address: str) -> Provider:
    """Return who answers at an endpoint.

    Raises:
        PlanRefused: Nobody who has Claude.
    """
    text, place = endpoint.provider.strip().casefold(), urlsplit(address)
    host = (place.hostname or "").casefold()
    by_host = next((provider for pattern, provider in _BY_HOST if pattern.match(host)), None)
    if text == "microsoft":
        if by_host == "foundry" or place.path.rstrip("/").endswith("/anthropic"):
            return "foundry"
        raise _refused(
            endpoint,
            f"has the provider 'microsoft' and the address {address!r}, which is Azure OpenAI's and serves no Claude. Set the provider to "
            "'azureai' and the address to https://RESOURCE.services.ai.azure.com/anthropic",
        )
    if text == "azureai" and host.endswith(_AZURE_OPENAI[0]):
        raise _refused(
            endpoint,
            f"has the address {address!r}, which is Azure OpenAI's and serves no Claude. Set it to "
            "https://RESOURCE.services.ai.azure.com/anthropic",
        )
    if text == "openai":
        raise _refused(
            endpoint,
            "has the provider 'openai', whose protocol Claude Code does not speak. If the gateway there also offers Anthropic's Messages "
            "API, set the provider to 'anthropic-compatible' and the address to what stands before /v1/messages",
        )
    if not text:
        return by_host or "anthropic"
    if text not in _BY_TEXT:
        raise _refused(endpoint, f"has the provider {endpoint.provider!r}, which Claude Code cannot call. {_CHOICE[:-1]}")
    return _BY_TEXT[text]


async def proof_of(provider: Provider, endpoint: EndpointConfiguration, keys: Keys) -> Fields:
    """Return the fields of a route that prove its right: a key, or whose identity; none where no key was found.

    Raises:
        PlanRefused: The kind of authentication does not exist for this provider, or a key that is named has no value.
    """
    kind = endpoint.authentication_type.strip().casefold()
    if kind not in ("", "unknown", "apikey", "azureidentity"):
        raise _refused(
            endpoint,
            f"has the authentication type {endpoint.authentication_type!r}, which no model's endpoint takes. Set it to 'APIKey' or "
            "'AzureIdentity'",
        )
    if kind == "azureidentity":
        return await _identity(provider, endpoint, keys)
    if provider == "bedrock":
        return await _bedrock_key(endpoint, keys)
    if provider == "vertex":
        return await _vertex_key(endpoint, keys)
    key = await _optional(endpoint, "api_key_configuration_name", keys)
    if key is None:
        return {}
    fields: Fields = {"api_key": key}
    for name in ("api_key_header_name", "api_key_prefix"):
        if text := _text(endpoint, name):
            fields[name.removesuffix("_name")] = text
    return fields


def place_of(provider: Provider, endpoint: EndpointConfiguration, address: str) -> Fields:
    """Return the fields of a route that say where it leads; what the address does not tell may stand beside the key's name."""
    fields: Fields = {"base_url": address}
    if provider == "vertex" and (path := _VERTEX_PATH.match(address)):
        fields = {"base_url": path["base"], "project": path["project"], "region": path["region"]}
    if provider in ("bedrock", "vertex"):
        names = ("region",) if provider == "bedrock" else ("region", "project")
        fields |= {name: text for name in names if (text := _text(endpoint, name))}
    return fields


async def _identity(provider: Provider, endpoint: EndpointConfiguration, keys: Keys) -> Fields:
    scope = _text(endpoint, "scope")
    if provider == "foundry":
        return {"credential": {"kind": "entra", **({"scope": scope} if scope else {})}}
    if provider == "anthropic-compatible" and scope:
        return {"credential": {"kind": "entra", "scope": scope}}
    if provider == "anthropic-compatible":
        raise _refused(endpoint, "has the authentication type 'AzureIdentity' and no 'scope'. Add what the gateway's tokens are asked for")
    if provider == "vertex":
        return {"credential": {"kind": "google_identity"}}
    if provider == "bedrock":
        if _text(endpoint, "identity").casefold() == "aws":
            return {"credential": {"kind": "aws_identity"}}
        if not (arn := await _literal_or_key(endpoint, "role_arn", keys)):
            raise _refused(
                endpoint,
                "has the authentication type 'AzureIdentity' and no 'role_arn'. Add the role in AWS that the service's identity may take, "
                "or the name of the configuration key that holds it; where the service runs in AWS itself, add 'identity' with the "
                "value 'aws'",
            )
        scope = await _literal_or_key(endpoint, "scope", keys)
        return {"credential": {"kind": "aws_role", "role_arn": arn, **({"scope": scope} if scope else {})}}
    raise _refused(endpoint, "has the authentication type 'AzureIdentity', and Anthropic takes keys only. Set it to 'APIKey'")


async def _bedrock_key(endpoint: EndpointConfiguration, keys: Keys) -> Fields:
    """Return AWS keys from their own configuration keys, or what one key holds: an API key of Bedrock, or AWS keys as JSON."""
    if _text(endpoint, "access_key") or _text(endpoint, "secret_key"):
        parts = {
            "access_key_id": await _needed(endpoint, "access_key", keys),
            "secret_access_key": await _needed(endpoint, "secret_key", keys),
            "session_token": await _optional(endpoint, "session_token", keys),
        }
        return {"credential": {"kind": "aws_keys", **parts}}
    key = await _needed(endpoint, "api_key_configuration_name", keys)
    text = key.get_secret_value().strip()
    if not text.startswith("{"):
        return {"api_key": key}
    return {"credential": {"kind": "aws_keys", **_aws_keys(endpoint, text)}}


def _aws_keys(endpoint: EndpointConfiguration, text: str) -> Fields:
    names = ("access_key_id", "secret_access_key", "session_token")
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    parts = {name: SecretStr(found[name]) for name in names if isinstance(found.get(name), str)}
    if not {"access_key_id", "secret_access_key"} <= set(parts):
        raise _refused(
            endpoint,
            'names a key whose value is no AWS key. Write {"access_key_id": "…", "secret_access_key": "…"}, or an API key of Bedrock',
        )
    return dict(parts)


async def _vertex_key(endpoint: EndpointConfiguration, keys: Keys) -> Fields:
    name = "service_account_credentials" if _text(endpoint, "service_account_credentials") else "api_key_configuration_name"
    return {"credential": {"kind": "google_key", "key_json": await _needed(endpoint, name, keys)}}


async def _literal_or_key(endpoint: EndpointConfiguration, parameter: str, keys: Keys) -> str:
    """Return a value that may stand in the endpoint itself, because it is no secret, or behind a configuration key."""
    text = _text(endpoint, parameter)
    if not text or text.startswith(("arn:", "api://", "https://")):
        return text
    return (await _needed(endpoint, parameter, keys)).get_secret_value().strip()


async def _needed(endpoint: EndpointConfiguration, parameter: str, keys: Keys) -> SecretStr:
    found = await _optional(endpoint, parameter, keys)
    if found is None:
        named = _text(endpoint, parameter)
        what = f"the service has no value for {named!r}" if named else f"its authentication parameters have no {parameter!r}"
        raise PlanRefused(f"There is no key for the model endpoint {endpoint.name!r}: {what}. An administrator has to provide it.")
    return found


async def _optional(endpoint: EndpointConfiguration, parameter: str, keys: Keys) -> SecretStr | None:
    name = _text(endpoint, parameter)
    return await keys(endpoint, name) if name else None


def _text(endpoint: EndpointConfiguration, parameter: str) -> str:
    found = endpoint.authentication_parameters.get(parameter)
    return found.strip() if isinstance(found, str) else ""


def _refused(endpoint: EndpointConfiguration, what: str) -> PlanRefused:
    return PlanRefused(f"The model endpoint {endpoint.name!r} {what}.")
