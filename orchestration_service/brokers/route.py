"""Where a model call goes, and with which credentials: read from the platform's resources, never from the sandbox."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator


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

    provider: Literal["anthropic", "anthropic-compatible"] = Field(
        "anthropic", description="Who answers: Anthropic itself, or a gateway that speaks the same protocol."
    )
    base_url: str = Field(
        "https://api.anthropic.com", description="Address before /v1/messages; a path prefix is kept, a final /v1 is not."
    )
    api_key: SecretStr | None = Field(None, description="Key, sent in api_key_header.")
    api_key_header: str = Field("x-api-key", description="Header the key is sent in.")
    auth_token: SecretStr | None = Field(None, description="Token, sent as Authorization: Bearer.")
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

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        scheme, _, rest = value.partition("://")
        if scheme not in ("http", "https") or not rest.split("/")[0] or any(mark in value for mark in ("@", "?", "#", " ")):
            raise ValueError("base_url must be http(s)://host[:port][/prefix], without user, query or spaces")
        return value.rstrip("/").removesuffix("/v1")

    @model_validator(mode="after")
    def _headers_can_be_sent(self) -> Self:
        for secret in (self.api_key, self.auth_token):
            if secret is not None and not secret.get_secret_value().strip():
                raise ValueError("the key or token is empty; leave it out, or check the setting it is read from")
        for name, value in self.sent_headers().items():
            if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"{name!r} is no header name")
            if not value.isascii() or not value.isprintable():
                # the value may be a key, so it is not shown
                raise ValueError(f"the value of header {name!r} has characters no header can carry; check for line ends")
        return self

    def sent_headers(self) -> dict[str, str]:
        """Give the headers that come from the route, credentials included."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.api_key is not None:
            headers[self.api_key_header.lower()] = self.api_key.get_secret_value()
        if self.auth_token is not None:
            headers["authorization"] = f"Bearer {self.auth_token.get_secret_value()}"
        return headers

    def scrub(self, text: str) -> str:
        """Take everything secret of this route out of a text that leaves the broker."""
        credentials = [secret.get_secret_value() for secret in (self.api_key, self.auth_token) if secret is not None]
        # a short header such as "true" is no secret, and would tear holes into every sentence
        secrets = [*credentials, *(value for value in self.headers.values() if len(value) >= 8)]
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text
