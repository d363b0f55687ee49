"""What can be chosen about session pools: the provider's own slice of the settings."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from context_client.embedded.azure_settings import AccountAddress

SHORTEST_KEY = 16
"""Bytes of a key for identifiers, at least."""

POOL_API_VERSION = "2024-10-02-preview"
"""The version of the pools' interface that this was written to."""


def _long_enough(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value().encode()) < SHORTEST_KEY:
        raise ValueError(f"must have at least {SHORTEST_KEY} bytes; make one with: openssl rand -hex 32")
    return value


class SessionPool(BaseModel):
    """One session pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=100, description="How it is called in figures and messages.")
    endpoint: AccountAddress = Field(
        description="Its management endpoint (`properties.poolManagementEndpoint`), with its path if it has one."
    )
    region: str = Field(default="", description="Where it is; for figures and messages only.")
    priority: int = Field(default=0, ge=0, description="Pools with a lower number are asked first; among equals sessions are spread.")
    max_sessions: int = Field(default=10, ge=1, description="Its `maxConcurrentSessions`: the weight with which sessions are spread.")
    cooldown_seconds: float = Field(
        default=300.0, gt=0, description="Its `cooldownPeriodInSeconds`: how long a slot stays taken after the last call."
    )


class DynamicSessionsSettings(BaseModel):
    """All session pools, and how long to wait for them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pools: tuple[SessionPool, ...] = Field(min_length=1, description="The pools; any of them may take any session.")
    identifier_key: Annotated[SecretStr, AfterValidator(_long_enough)] = Field(
        description="Makes session identifiers unguessable; the same for all replicas, or they don't find each other's sandboxes."
    )
    kind: Literal["custom-container", "code-interpreter"] = Field(
        default="custom-container",
        description="Which routes the pools have: those of our image, or those of the platform's own Python sandbox.",
    )
    api_version: str = Field(default=POOL_API_VERSION, min_length=1, description="`api-version` of every call.")
    expected: Mapping[str, str] = Field(
        default_factory=dict,
        description="What `GET /health` of the pools' image must say, by key; a session whose sandbox says something else is refused.",
    )
    wait_seconds: float = Field(default=300.0, ge=0, description="How long a session waits for a free slot before it is refused.")
    retry_seconds: float = Field(default=2.0, gt=0, description="Pause between two asks of a full pool that names none itself.")
    unreachable_seconds: float = Field(default=60.0, ge=0, description="How long to go on asking when no pool answers at all.")
    connect_seconds: float = Field(default=10.0, gt=0, description="How long one attempt to connect may take.")
    call_seconds: float = Field(
        default=600.0, gt=0, le=1800, description="How long one call may take, waiting for a slot not counted; pools cut at 1801."
    )
    upload_limit_bytes: int = Field(default=128 * 1024 * 1024, gt=0, description="Longest request body; pools refuse more with 413.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.expected and self.kind == "code-interpreter":
            raise ValueError("sandboxes of a code-interpreter pool do not tell what they are: 'expected' is for pools of our image")
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"two pools have the same name among {names}")
        return self
