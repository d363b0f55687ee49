"""The endpoints behind which Claude is served, one kind per provider, in the parameter names the platform already uses."""

from collections.abc import Mapping
from dataclasses import dataclass

from deployment_templates.profile import ModelProvider, Profile
from deployment_templates.resources.configuration import REFERENCE_CONTENT, SERVICES, AppConfigurationEntry
from deployment_templates.resources.models import AuthenticationParameters

MODEL_CALL_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class ProviderFacts:
    """What is the same for all installations with one provider."""

    endpoint: str
    """Name of the endpoint resource. It must not end in `API`: the service gives the keys of such endpoints to nobody."""

    provider: str
    """The endpoint's `provider`, by which the service chooses how to call it."""

    url: str = ""
    """Address, where it is always the same."""

    api_version: str | None = None
    """Version of the API, where it is one of the address or of a header."""


PROVIDERS: Mapping[ModelProvider, ProviderFacts] = {
    "anthropic": ProviderFacts(endpoint="Anthropic", provider="anthropic", url="https://api.anthropic.com", api_version="2023-06-01"),
    "foundry": ProviderFacts(endpoint="ClaudeFoundry", provider="azureai"),
    "bedrock": ProviderFacts(endpoint="ClaudeBedrock", provider="bedrock"),
    "vertex": ProviderFacts(endpoint="ClaudeVertex", provider="vertexai"),
    "gateway": ProviderFacts(endpoint="ClaudeGateway", provider="anthropic-compatible"),
}


def key_name(endpoint: str) -> str:
    """Return the configuration key of an endpoint's secret, the only form the service looks up for a request."""
    return f"{SERVICES}:{endpoint}:Essentials:APIKey"


def secret_entry(profile: Profile, endpoint: str, why: str) -> AppConfigurationEntry:
    """Return the entry that refers to the secret of an endpoint; the secret is named as the platform names its own."""
    return AppConfigurationEntry(
        key=key_name(endpoint),
        secret_name=f"{profile.names.secret_prefix}apiendpoints-{endpoint.lower()}-apikey",
        content_type=REFERENCE_CONTENT,
        why=why,
    )


def authentication(profile: Profile) -> AuthenticationParameters:
    """Return how the chosen provider is opened. Every secret is behind the one key the service gives to a model's endpoint."""
    models, key = profile.models, key_name(PROVIDERS[profile.models.provider].endpoint)
    if models.authentication == "identity":
        given = {"role_arn": models.aws_role_arn, "scope": models.scope}
        return AuthenticationParameters(**{name: value for name, value in given.items() if value is not None})
    if models.provider == "vertex":
        return AuthenticationParameters(service_account_credentials=key)
    if models.provider == "bedrock":
        return AuthenticationParameters(api_key_configuration_name=key)
    header = models.header if models.provider == "gateway" else "x-api-key"
    return AuthenticationParameters(api_key_configuration_name=key, api_key_header_name=header)


def entries(profile: Profile) -> tuple[AppConfigurationEntry, ...]:
    """Return the configuration entries that `authentication` names."""
    if profile.models.authentication == "identity":
        return ()
    provider = profile.models.provider
    return (secret_entry(profile, PROVIDERS[provider].endpoint, f"opens the model provider, for the service alone: {_SECRETS[provider]}"),)


_SECRETS: Mapping[ModelProvider, str] = {
    "anthropic": "an API key",
    "foundry": "a key of the Foundry resource",
    "bedrock": 'a Bedrock API key, or {"access_key_id": "…", "secret_access_key": "…"}',
    "vertex": "a service account as JSON",
    "gateway": "the gateway's key",
}
