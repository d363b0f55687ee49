"""Each way to a model that the broker knows: a stand-in that is served, and the fields of a route that is right, or wrong, for it."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.types import ASGIApp

from orchestration_service.scripted.endpoint import serve
from tests.orchestration_service.brokers.standins.bedrock import REGION as AWS_REGION
from tests.orchestration_service.brokers.standins.bedrock import Bedrock, Sts
from tests.orchestration_service.brokers.standins.entra import HEADER, ManagedIdentity
from tests.orchestration_service.brokers.standins.messages_api import Foundry, MessagesApi
from tests.orchestration_service.brokers.standins.provider import Provider
from tests.orchestration_service.brokers.standins.vertex import PROJECT, REGION, GoogleTokens, Vertex, federation

KEY = "key-0123456789abcdef"
WRONG = "wrong-0123456789abcd"
_AUDIENCES = ("https://ai.azure.com", "https://cognitiveservices.azure.com")
_ROLE = "arn:aws:iam::123456789012:role/agent"

Fields = dict[str, Any]


@dataclass
class Place:
    """One way to a model."""

    provider: Provider
    """Who is reached."""
    right: Fields
    """Fields of a route by which it is reached."""
    wrong: Fields
    """Fields that are put in their place, by which it is not."""
    secrets: tuple[str, ...] = (KEY, WRONG)
    """What must not be told to anybody."""
    issuer: Any = None
    """Who gives out the tokens, if somebody does."""
    urls: Fields = field(default_factory=dict)
    """Where it is."""


Served = Callable[[ASGIApp], AbstractAsyncContextManager[Any]]
Maker = Callable[[pytest.MonkeyPatch, Path], AbstractAsyncContextManager[Place]]


@asynccontextmanager
async def anthropic(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Anthropic, by a key."""
    provider = MessagesApi(is_right=lambda value: value == KEY)
    async with serve(provider) as endpoint:
        yield Place(provider, {"base_url": endpoint.base_url, "api_key": KEY}, {"api_key": WRONG})


@asynccontextmanager
async def gateway_header(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """A gateway, by a key in a header of its own, with a word before it."""
    provider = MessagesApi(header="x-team-key", is_right=lambda value: value == f"Team {KEY}", prefix="/models")
    async with serve(provider) as endpoint:
        shape = {"provider": "anthropic-compatible", "api_key_header": "X-Team-Key", "api_key_prefix": "Team"}
        yield Place(provider, {**shape, "base_url": f"{endpoint.base_url}/models/v1", "api_key": KEY}, {"api_key": WRONG})


@asynccontextmanager
async def gateway_bearer(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """A gateway, by a token."""
    provider = MessagesApi(header="authorization", is_right=lambda value: value == f"Bearer {KEY}")
    async with serve(provider) as endpoint:
        yield Place(provider, {"provider": "anthropic-compatible", "base_url": endpoint.base_url, "auth_token": KEY}, {"auth_token": WRONG})


@asynccontextmanager
async def _managed_identity(patch: pytest.MonkeyPatch) -> AsyncIterator[ManagedIdentity]:
    identity = ManagedIdentity()
    async with serve(identity) as endpoint:
        for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "MSI_ENDPOINT"):
            patch.delenv(name, raising=False)
        patch.setenv("IDENTITY_ENDPOINT", f"{endpoint.base_url}/msi/token")
        patch.setenv("IDENTITY_HEADER", HEADER)
        yield identity


@asynccontextmanager
async def gateway_entra(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """A gateway that takes tokens of Entra."""
    async with _managed_identity(patch) as identity:
        provider = MessagesApi(
            header="authorization", is_right=lambda value: identity.is_for(value.removeprefix("Bearer "), "api://gateway")
        )
        async with serve(provider) as endpoint:
            right = {"provider": "anthropic-compatible", "base_url": endpoint.base_url, "credential": _entra("api://gateway/.default")}
            yield Place(provider, right, {"credential": _entra("api://other/.default")}, issuer=identity)


@asynccontextmanager
async def foundry_key(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Microsoft Foundry, by a key; the address is that of the resource."""
    provider = Foundry(is_right=lambda value: value == KEY)
    async with serve(provider) as endpoint:
        yield Place(provider, {"provider": "foundry", "base_url": endpoint.base_url, "api_key": KEY}, {"api_key": WRONG})


@asynccontextmanager
async def foundry_entra(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Microsoft Foundry, by a managed identity."""
    async with _managed_identity(patch) as identity:
        provider = Foundry(is_token=lambda token: identity.is_for(token, *_AUDIENCES))
        async with serve(provider) as endpoint:
            right = {"provider": "foundry", "base_url": endpoint.base_url, "credential": {"kind": "entra"}}
            yield Place(provider, right, {"credential": _entra("https://management.azure.com/.default")}, issuer=identity)


@asynccontextmanager
async def bedrock_keys(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Amazon Bedrock, by temporary keys."""
    provider = Bedrock(keys={"AKIA0000": (KEY, "session-0123456789")})
    async with serve(provider) as endpoint:
        keys = {"kind": "aws_keys", "access_key_id": "AKIA0000", "secret_access_key": KEY, "session_token": "session-0123456789"}
        right = {"provider": "bedrock", "region": AWS_REGION, "base_url": endpoint.base_url, "credential": keys}
        yield Place(provider, right, {"credential": {**keys, "secret_access_key": WRONG}}, (KEY, WRONG, "session-0123456789"))


@asynccontextmanager
async def bedrock_api_key(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Amazon Bedrock, by an API key of its own."""
    provider = Bedrock(api_key=KEY)
    async with serve(provider) as endpoint:
        right = {"provider": "bedrock", "region": AWS_REGION, "base_url": endpoint.base_url, "api_key": KEY}
        yield Place(provider, right, {"api_key": WRONG})


@asynccontextmanager
async def bedrock_identity(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Amazon Bedrock, by whatever the service finds in its environment."""
    provider = Bedrock(keys={"AKIA0001": (KEY, None)}, region="eu-north-1")
    patch.setenv("AWS_CONFIG_FILE", str(folder / "none"))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
    patch.setenv("AWS_ACCESS_KEY_ID", "AKIA0001")
    patch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    async with serve(provider) as endpoint:
        right = {"provider": "bedrock", "region": "eu-north-1", "base_url": endpoint.base_url, "credential": {"kind": "aws_identity"}}
        yield Place(provider, right, {"region": "eu-south-1"})


@asynccontextmanager
async def bedrock_role(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Amazon Bedrock, by a role that the service's Entra identity takes."""
    async with _managed_identity(patch) as identity:
        provider = Bedrock()
        issuer = Sts(_ROLE, lambda token: identity.is_for(token, "api://AzureADTokenExchange"), provider.keys)
        async with serve(provider) as endpoint, serve(issuer) as tokens:
            patch.setenv("AWS_ENDPOINT_URL_STS", tokens.base_url)
            role = {"kind": "aws_role", "role_arn": _ROLE}
            right = {"provider": "bedrock", "region": AWS_REGION, "base_url": endpoint.base_url, "credential": role}
            secrets = ("secret-of-a-role", "session-of-a-role")
            yield Place(provider, right, {"credential": {**role, "role_arn": f"{_ROLE}s"}}, secrets, issuer)


@asynccontextmanager
async def vertex_key(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Google Vertex AI, by the key of a service account."""
    provider = Vertex()
    issuer = GoogleTokens(provider.tokens)
    async with serve(provider) as endpoint, serve(issuer) as tokens:
        issuer.address = f"{tokens.base_url}/token"
        key, strange = issuer.key_file(), issuer.key_file(rsa.generate_private_key(public_exponent=65537, key_size=2048))
        right = {"provider": "vertex", "region": REGION, "base_url": f"{endpoint.base_url}/v1", "credential": _google(key)}
        secrets = ("ya29.token-number", key["private_key"], strange["private_key"])
        yield Place(provider, right, {"credential": _google(strange)}, secrets, issuer)


@asynccontextmanager
async def vertex_identity(patch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Place]:
    """Google Vertex AI, by the identity of a workload that runs elsewhere."""
    provider = Vertex()
    issuer = GoogleTokens(provider.tokens)
    async with serve(provider) as endpoint, serve(issuer) as tokens:
        (folder / "token").write_text(issuer.workload_token)
        (folder / "federation.json").write_text(federation(f"{tokens.base_url}/v1/token", str(folder / "token")))
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "federation.json"))
        shape = {"provider": "vertex", "region": REGION, "base_url": endpoint.base_url, "project": PROJECT}
        wrong = {"credential": None, "auth_token": WRONG}
        yield Place(provider, {**shape, "credential": {"kind": "google_identity"}}, wrong, ("ya29.token-number", WRONG), issuer)


def _entra(scope: str) -> Fields:
    return {"kind": "entra", "scope": scope}


def _google(key: dict[str, str]) -> Fields:
    return {"kind": "google_key", "key_json": json.dumps(key)}


PROVIDERS: Mapping[str, Maker] = {
    "anthropic": anthropic,
    "gateway": gateway_header,
    "foundry": foundry_key,
    "bedrock": bedrock_keys,
    "vertex": vertex_key,
}
"""One way to each provider; what goes on behind the proof is the same for the others."""

OTHER_PROOFS: Mapping[str, Maker] = {
    "gateway_bearer": gateway_bearer,
    "gateway_entra": gateway_entra,
    "foundry_entra": foundry_entra,
    "bedrock_api_key": bedrock_api_key,
    "bedrock_identity": bedrock_identity,
    "bedrock_role": bedrock_role,
    "vertex_identity": vertex_identity,
}
"""The other proofs."""
