"""The official package's clients, one for each route, over one pool of connections.

They make the address, prove who asks (keys, tokens, signatures), and send. What they would do besides is turned off:
their retries and their waits are ours (`model`), and they get the body as bytes and give the answer unread, whatever
its status (`attempt` reads it). What they would read from the environment is overruled: a route says everything.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import httpx
from anthropic import (
    AnthropicError,
    APIConnectionError,
    AsyncAnthropic,
    AsyncAnthropicBedrock,
    AsyncAnthropicFoundry,
    AsyncAnthropicVertex,
    AsyncStream,
    Omit,
)
from pydantic import SecretStr

from orchestration_service.brokers.credentials import AwsKeys, AwsRole, EntraIdentity, GoogleIdentity, GoogleKey
from orchestration_service.brokers.errors import IdentityRefused, RouteUnusable
from orchestration_service.brokers.identities import Identities, load
from orchestration_service.brokers.omissions import NOTHING, Omissions
from orchestration_service.brokers.request import UpstreamRequest
from orchestration_service.brokers.route import ModelRoute

_MOST_KEPT = 128
_PLACEHOLDER = "replaced"
"""Keeps a client from looking for a key in its environment."""

Client: TypeAlias = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex


@dataclass
class _Line:
    """What is kept for the calls of one route."""

    client: Client
    """Sends its requests."""
    omissions: dict[bool, Omissions] = field(default_factory=dict)
    """What its endpoint was found to refuse, for messages and for counting tokens, which may differ."""
    keys: AwsKeys | None = None
    """Temporary keys the client signs with."""


@dataclass
class ModelClients:
    """Sends requests to models; keeps the clients that were used last."""

    http: httpx.AsyncClient
    """Connections of all clients."""
    identities: Identities
    """Proofs for routes without a key."""
    _lines: OrderedDict[object, _Line] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        # at DEBUG these packages write whole requests and answers into the log, with what people said and with keys
        for name in ("anthropic", "botocore"):
            package = logging.getLogger(name)
            package.setLevel(max(package.level, logging.INFO))

    def omissions(self, route: ModelRoute, *, streams: bool) -> Omissions:
        """Say what the route's endpoint is known to refuse."""
        line = self._lines.get(_identity(route))
        return line.omissions.get(streams, NOTHING) if line else NOTHING

    def learn(self, route: ModelRoute, omissions: Omissions, *, streams: bool) -> None:
        """Remember what the route's endpoint refuses; a call without it has succeeded."""
        line = self._lines.get(_identity(route))
        if line is not None and omissions.lasts and omissions.is_small:
            line.omissions[streams] = line.omissions.get(streams, NOTHING) | omissions

    async def send(self, route: ModelRoute, request: UpstreamRequest, timeout: httpx.Timeout) -> httpx.Response:
        """Send a request and give its answer unread, whatever its status; whoever gets it closes it.

        Raises:
            UpstreamFault: the service has no proof for this route, or no request can be made for it.
            httpx.HTTPError: the answer did not begin.
        """
        line = await self._line(route)
        credential, headers = route.credential, _without_placeholders(route, request)
        if isinstance(credential, AwsRole):
            keys = await self.identities.role(credential, str(route.region))
            if keys != line.keys:
                line.client, line.keys = self._bedrock(route, keys), keys
        elif isinstance(credential, GoogleKey | GoogleIdentity) or (isinstance(credential, EntraIdentity) and route.provider != "foundry"):
            headers["Authorization"] = f"Bearer {await self.identities.bearer(credential)}"
        return await _sent(line.client, request, headers, timeout)

    def distrust(self, route: ModelRoute) -> None:
        """Forget the token that an endpoint refused, so that the next call asks for a new one."""
        self.identities.forget(route.credential, route.region)

    async def _line(self, route: ModelRoute) -> _Line:
        identity = _identity(route)
        line = self._lines.get(identity)
        if line is None:
            if route.provider == "bedrock":
                await load("aws_frames", "bedrock")
                await anyio.to_thread.run_sync(__import__, "boto3")  # the client imports it at its first signature
            client = await anyio.to_thread.run_sync(self._client, route)  # it looks for profiles on the disk, to warn of them
            line = self._lines.setdefault(identity, _Line(client))
            if len(self._lines) > _MOST_KEPT:
                self._lines.popitem(last=False)
        self._lines.move_to_end(identity)
        return line

    def _client(self, route: ModelRoute) -> Client:
        make: Callable[[ModelRoute], Client] = {
            "foundry": self._foundry,
            "bedrock": self._bedrock,
            "vertex": self._vertex,
        }.get(route.provider, self._anthropic)
        try:
            client = make(route)
        except (AnthropicError, ValueError) as error:
            advice = "; unset ANTHROPIC_FOUNDRY_RESOURCE and ANTHROPIC_FOUNDRY_BASE_URL" if route.provider == "foundry" else ""
            raise RouteUnusable(f"no client can be made for this route: {error}{advice}") from error
        client._custom_headers = {}  # what ANTHROPIC_CUSTOM_HEADERS holds is meant for another program
        return client

    def _anthropic(self, route: ModelRoute) -> Client:
        key = _secret(route.api_key) if route.has_plain_key else None
        token = _secret(route.auth_token)
        return AsyncAnthropic(api_key=key if key or token else _PLACEHOLDER, auth_token=token, **self._shared(route.base_url))

    def _foundry(self, route: ModelRoute) -> Client:
        credential, token = route.credential, _secret(route.auth_token)

        async def proof() -> str:
            return await self.identities.bearer(credential) if isinstance(credential, EntraIdentity) else str(token)

        if route.api_key is None:
            return AsyncAnthropicFoundry(azure_ad_token_provider=proof, **self._shared(route.base_url))
        key = _secret(route.api_key) if route.has_plain_key else _PLACEHOLDER
        return AsyncAnthropicFoundry(api_key=key, **self._shared(route.base_url))

    def _bedrock(self, route: ModelRoute, keys: AwsKeys | None = None) -> Client:
        # with a key at hand it looks for none in AWS_BEARER_TOKEN_BEDROCK, which another service may be meant to use
        client = AsyncAnthropicBedrock(api_key=_PLACEHOLDER, aws_region=route.region, **self._shared(route.base_url))
        client.api_key = _secret(route.api_key) or _secret(route.auth_token)
        if keys is None and isinstance(route.credential, AwsKeys):
            keys = route.credential
        if keys is not None:
            client.aws_access_key = _secret(keys.access_key_id)
            client.aws_secret_key = _secret(keys.secret_access_key)
            client.aws_session_token = _secret(keys.session_token)
        return client

    def _vertex(self, route: ModelRoute) -> Client:
        return AsyncAnthropicVertex(
            region=str(route.region),
            project_id=str(route.google_project),
            access_token=_secret(route.auth_token) or _PLACEHOLDER,
            **self._shared(f"{route.base_url}/v1"),
        )

    def _shared(self, base_url: str) -> dict[str, Any]:
        return {"base_url": base_url, "max_retries": 0, "http_client": self.http, "middleware": [_unread]}


def _without_placeholders(route: ModelRoute, request: UpstreamRequest) -> dict[str, str | Omit]:
    """Give a request's headers, and take away those in which a client would send what it was made with for want of a key."""
    if route.has_plain_key:
        return {**request.headers}
    return {"X-Api-Key": Omit(), "x-api-key": Omit(), "api-key": Omit(), **request.headers}


async def _unread(request: Any, call_next: Any) -> Any:
    """Hand out the answer of the HTTP library itself; the package would read errors to their end, however long."""
    return (await call_next(request)).http_response


async def _sent(client: Client, request: UpstreamRequest, headers: dict[str, str | Omit], timeout: httpx.Timeout) -> httpx.Response:
    try:
        response: Any = await client.post(
            request.path,
            cast_to=object,
            content=request.content,
            options={"headers": headers, "timeout": timeout},
            stream=True,
            stream_cls=AsyncStream[object],
        )
    except APIConnectionError as error:
        if isinstance(error.__cause__, httpx.HTTPError | httpx.InvalidURL):
            raise error.__cause__ from None
        raise RouteUnusable(f"the request could not be sent ({type(error.__cause__).__name__})") from error
    except Exception as error:
        # botocore's errors share no root with others, and it raises RuntimeError too when there is no identity
        if isinstance(client, AsyncAnthropicBedrock) and (isinstance(error, RuntimeError) or type(error).__module__.startswith("botocore")):
            raise IdentityRefused("AWS") from error
        raise
    assert isinstance(response, httpx.Response)
    return response


def _identity(route: ModelRoute) -> object:
    """Give what makes two routes the same for their clients; the secrets in it are compared and never shown."""
    return (
        route.provider,
        route.base_url,
        route.region,
        route.google_project,
        route.model,
        route.api_key,
        route.api_key_header,
        route.api_key_prefix,
        route.auth_token,
        route.credential,
    )


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value is not None else None
