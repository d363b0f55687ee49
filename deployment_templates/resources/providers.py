"""The endpoints behind which Claude is served, one kind per provider, in the parameter names the platform already uses."""

from collections.abc import Mapping
from dataclasses import dataclass

from deployment_templates.profile import ModelProvider, Profile
from deployment_templates.resources.configuration import REFERENCE_CONTENT, SERVICES, AppConfigurationEntry
from deployment_templates.resources.models import AuthenticationParameters

FOUNDRY_SCOPE = "https://ai.azure.com/.default"
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
    "foundry": ProviderFacts(endpoint="ClaudeFoundry", provider="foundry"),
    "bedrock": ProviderFacts(endpoint="ClaudeBedrock", provider="bedrock"),
    "vertex": ProviderFacts(endpoint="ClaudeVertex", provider="vertexai"),
    "gateway": ProviderFacts(endpoint="ClaudeGateway", provider="anthropic-compatible"),
}


def key_name(endpoint: str, part: str = "Essentials:APIKey") -> str:
    """Return the configuration key of an endpoint's secret or setting."""
    return f"{SERVICES}:{endpoint}:{part}"


def secret_entry(profile: Profile, endpoint: str, why: str, part: str = "APIKey") -> AppConfigurationEntry:
    """Return the entry that refers to a secret of an endpoint; the secret is named as the platform names its own."""
    return AppConfigurationEntry(
        key=key_name(endpoint, f"Essentials:{part}"),
        secret_name=f"{profile.names.secret_prefix}apiendpoints-{endpoint.lower()}-{part.lower()}",
        content_type=REFERENCE_CONTENT,
        why=why,
    )


def authentication(profile: Profile) -> AuthenticationParameters:
    """Return how the chosen provider is opened."""
    models, endpoint = profile.models, PROVIDERS[profile.models.provider].endpoint
    key = key_name(endpoint)
    if models.provider == "foundry" and models.authentication == "identity":
        return AuthenticationParameters(scope=FOUNDRY_SCOPE)
    if models.provider == "bedrock" and models.authentication == "identity":
        return AuthenticationParameters(
            scope=key_name(endpoint, "Configuration:Scope"), role_arn=key_name(endpoint, "Configuration:RoleArn")
        )
    if models.provider == "bedrock":
        return AuthenticationParameters(
            access_key=key_name(endpoint, "Essentials:AccessKey"), secret_key=key_name(endpoint, "Essentials:SecretKey")
        )
    if models.provider == "vertex":
        return AuthenticationParameters(service_account_credentials=key_name(endpoint, "Essentials:ServiceAccountCredentials"))
    header = {"foundry": "api-key", "gateway": models.header}.get(models.provider, "x-api-key")
    return AuthenticationParameters(api_key_configuration_name=key, api_key_header_name=header)


def entries(profile: Profile) -> tuple[AppConfigurationEntry, ...]:
    """Return the configuration entries that `authentication` names."""
    models, endpoint = profile.models, PROVIDERS[profile.models.provider].endpoint
    parameters = authentication(profile)
    plain = {parameters.role_arn: models.aws_role_arn, parameters.scope: models.aws_scope}
    settings = tuple(
        AppConfigurationEntry(key=key, value=value, why="how the service's identity is let in at the model provider")
        for key, value in plain.items()
        if key is not None and key.startswith(SERVICES) and value is not None
    )
    named = (
        parameters.api_key_configuration_name,
        parameters.access_key,
        parameters.secret_key,
        parameters.service_account_credentials,
    )
    why = "what opens the model provider, for the service alone"
    return settings + tuple(secret_entry(profile, endpoint, why, key.rpartition(":")[2]) for key in named if key is not None)
