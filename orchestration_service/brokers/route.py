"""Where a model call goes, and with which credentials: read from the platform's resources, never from the sandbox."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from orchestration_service.brokers.credentials import Credential, GoogleKey

Provider = Literal["anthropic", "anthropic-compatible", "foundry", "bedrock", "vertex"]
"""Who answers: Anthropic, a gateway that speaks its protocol, Microsoft Foundry, Amazon Bedrock, Google Vertex AI."""

_CREDENTIALS: Mapping[str, frozenset[str]] = {
    "anthropic": frozenset(),
    "anthropic-compatible": frozenset({"entra"}),
    "foundry": frozenset({"entra"}),
    "bedrock": frozenset({"aws_keys", "aws_identity", "aws_role"}),
    "vertex": frozenset({"google_key", "google_identity"}),
}
_SPELLING: Mapping[str, str] = {
    "accept": "Accept",
    "authorization": "Authorization",
    "content-type": "Content-Type",
    "user-agent": "User-Agent",
    "x-api-key": "X-Api-Key",
}
"""Headers that the clients of the official package spell so; it would send another spelling beside its own."""

_REGION = re.compile(r"[a-z0-9-]{2,40}\Z")
_PROJECT = re.compile(r"[a-z0-9.:-]{1,100}\Z")
_NEEDS_PROOF = frozenset({"foundry", "bedrock", "vertex"})
_EXAMPLE_REGION: Mapping[str, str] = {"bedrock": "us-east-1", "vertex": "global"}
_HOSTS = (
    re.compile(r"(?:\A|\.)bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\."),  # private endpoints have a label before it
    re.compile(r"\A([a-z0-9-]+)-aiplatform\.googleapis\.com\Z"),
    re.compile(r"\Aaiplatform\.(us|eu)\.rep\.googleapis\.com\Z"),
)
"""Hosts of Bedrock and Vertex, with the region that is in their names."""


class ModelParameters(BaseModel):
    """What the administrator fixed for a model; wins over what the CLI asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float | None = Field(None, ge=0, le=1, description="Temperature to use.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling to use.")
    top_k: int | None = Field(None, ge=1, description="Number of candidates to sample from.")
    max_tokens: int | None = Field(None, ge=1, description="Cap for the tokens of one answer.")


class ModelRoute(BaseModel):
    """One model behind one endpoint. Printing it never shows a key."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    provider: Provider = Field("anthropic", description="Who answers, which says how requests are addressed, signed and framed.")
    base_url: str = Field(
        "",
        validate_default=True,
        description="Address before /v1/messages (or before /model for Bedrock, /v1/projects for Vertex); a path prefix is kept, "
        "a final /v1 is not. Empty for the provider's own address, which Foundry and gateways do not have.",
    )
    region: str | None = Field(None, description="Region of Bedrock or Vertex; empty for the one in the address.")
    project: str | None = Field(None, description="Google Cloud project of Vertex; empty for the one in the key.")
    api_key: SecretStr | None = Field(None, description="Key, sent in api_key_header; for Bedrock as Authorization: Bearer.")
    api_key_header: str = Field("x-api-key", description="Header the key is sent in.")
    api_key_prefix: str = Field("", description="Word before the key in its header, with a space between them.")
    auth_token: SecretStr | None = Field(None, description="Token, sent as Authorization: Bearer.")
    credential: Credential | None = Field(None, description="Who proves the route's right where it is neither key nor token.")
    model: str = Field(min_length=1, description="Deployment name that replaces the model of the request.")
    parameters: ModelParameters = Field(default_factory=ModelParameters, description="Parameters that win over the request.")
    headers: dict[str, str] = Field(default_factory=dict, repr=False, description="More headers, for gateways; may hold keys.")
    forward_betas: bool = Field(True, description="Whether the beta names of the CLI are sent on; strict gateways refuse them.")
    allow_server_tools: bool = Field(
        False, description="Whether a sandbox may ask the provider to reach the network for it (web search, fetching URLs)."
    )
    connect_timeout_seconds: float = Field(10, gt=0, le=120, description="Limit for making a connection.")
    idle_timeout_seconds: float = Field(120, gt=0, le=1800, description="Longest silence, before the first byte and between two.")
    max_attempts: int = Field(4, ge=1, le=20, description="How often one call is tried in all.")

    @model_validator(mode="before")
    @classmethod
    def _place_is_known(cls, given: Any) -> Any:
        """Fill in what the provider's name, address and key tell: one of region and address, the project, Foundry's path."""
        if not isinstance(given, dict):
            return given
        filled, provider, address = dict(given), given.get("provider", "anthropic"), str(given.get("base_url") or "")
        if provider in ("bedrock", "vertex") and not given.get("region"):
            filled["region"] = _region_of(address)
        if not address:
            filled["base_url"] = _address_of(provider, filled.get("region"))
        elif provider == "foundry" and urlsplit(address).path.strip("/") in ("", "v1", "models"):
            filled["base_url"] = address.rstrip("/").removesuffix("/v1").removesuffix("/models") + "/anthropic"
        return filled

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        scheme, _, rest = value.partition("://")
        if not value:
            raise ValueError("there is no address; Foundry's is https://RESOURCE.services.ai.azure.com, the others' follow from a region")
        if scheme not in ("http", "https") or not rest.split("/")[0] or any(mark in value for mark in ("@", "?", "#", " ")):
            raise ValueError("base_url must be http(s)://host[:port][/prefix], without user, query or spaces")
        return value.rstrip("/").removesuffix("/v1")

    @model_validator(mode="after")
    def _provider_has_what_it_needs(self) -> Self:
        kind = self.credential.kind if self.credential else None
        if kind is not None and kind not in _CREDENTIALS[self.provider]:
            raise ValueError(f"a credential of kind {kind!r} proves nothing to {self.provider!r}")
        if kind is not None and (self.api_key or self.auth_token):
            raise ValueError("there are both a key and an identity; leave one of them out")
        if self.provider in _NEEDS_PROOF and not (kind or self.api_key or self.auth_token):
            raise ValueError(f"{self.provider!r} needs a key, or an identity it knows")
        if self.provider in ("bedrock", "vertex") and not (self.region and _REGION.match(self.region)):
            raise ValueError(f"{self.provider!r} needs a region such as {_EXAMPLE_REGION[self.provider]!r}, in the route or in its address")
        if self.provider == "vertex" and self.api_key is not None:
            raise ValueError("'vertex' takes no API key for Claude; use a service account's key or the workload's identity")
        if self.provider == "vertex" and not (self.google_project and _PROJECT.match(self.google_project)):
            raise ValueError("'vertex' needs the name of a Google Cloud project, in the route or in the service account's key")
        return self

    @model_validator(mode="after")
    def _headers_can_be_sent(self) -> Self:
        for secret in (self.api_key, self.auth_token):
            if secret is not None and not secret.get_secret_value().strip():
                raise ValueError("the key or token is empty; leave it out, or check the setting it is read from")
        proofs = {"x-api-key": self.api_key, "authorization": self.auth_token}
        sent = {**self.extra_headers(), **{name: secret.get_secret_value() for name, secret in proofs.items() if secret}}
        for name, value in sent.items():
            if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"{name!r} is no header name")
            if not value.isascii() or not value.isprintable():
                # the value may be a key, so it is not shown
                raise ValueError(f"the value of header {name!r} has characters no header can carry; check for line ends")
        return self

    @property
    def google_project(self) -> str | None:
        """The project of Vertex: the route's own, or that of its key."""
        if self.project or not isinstance(self.credential, GoogleKey):
            return self.project
        return self.credential.content().get("project_id")

    @property
    def has_plain_key(self) -> bool:
        """Whether the key goes where the provider's own client puts it; otherwise it is one of the extra headers."""
        name = self.api_key_header.lower()
        plain = name in ("x-api-key", "api-key") if self.provider == "foundry" else name == "x-api-key"
        return self.api_key is not None and (self.provider == "bedrock" or (plain and not self.api_key_prefix))

    def extra_headers(self) -> dict[str, str]:
        """Give the headers that the provider's client does not make, a key in an unusual place included."""
        headers = {_SPELLING.get(name.lower(), name.lower()): value for name, value in self.headers.items()}
        if self.api_key is not None and not self.has_plain_key:
            prefix = f"{self.api_key_prefix} " if self.api_key_prefix else ""
            name = self.api_key_header.lower()
            headers[_SPELLING.get(name, name)] = prefix + self.api_key.get_secret_value()
        return headers

    def scrub(self, text: str, proofs: Collection[str] = ()) -> str:
        """Take everything secret of this route out of a text that leaves the broker.

        Args:
            text: the text.
            proofs: what else is secret, such as a token that was got for this route.
        """
        credentials = [secret.get_secret_value() for secret in (self.api_key, self.auth_token) if secret is not None]
        credentials += self.credential.secrets() if self.credential else ()
        # a short header such as "true" is no secret, and would tear holes into every sentence
        secrets = [*credentials, *(value for value in (*self.headers.values(), *proofs) if len(value) >= 8)]
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def _region_of(address: str) -> str | None:
    host = urlsplit(address).hostname or ""
    if host == "aiplatform.googleapis.com":
        return "global"
    return next((found.group(1) for known in _HOSTS if (found := known.search(host))), None)


def _address_of(provider: object, region: object) -> str:
    if provider == "bedrock" and region:
        return f"https://bedrock-runtime.{region}.amazonaws.com" + (".cn" if str(region).startswith("cn-") else "")
    if provider == "vertex" and region:
        host = {"global": "aiplatform", "us": "aiplatform.us.rep", "eu": "aiplatform.eu.rep"}.get(str(region), f"{region}-aiplatform")
        return f"https://{host}.googleapis.com"
    return "https://api.anthropic.com" if provider in ("anthropic", "anthropic-compatible") else ""
