"""Everything an administrator can set, read once at start.

Values come from the environment (``CLAUDE_CODE_…``), a ``.env`` file in the working directory, or the platform's App Configuration;
the first that has one wins. A wrong or missing value stops the start with the variable's name and what belongs there; secrets show up
neither in messages nor in ``repr``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AliasChoices, AnyHttpUrl, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, DotEnvSettingsSource, EnvSettingsSource, SettingsConfigDict

from context_client.embedded.azure_settings import AccountAddress
from context_client.pools.settings import POOL_API_VERSION, SHORTEST_KEY, SessionPool
from context_client.size import USUAL_SIZE, SandboxSize
from orchestration_service.errors import SettingsError
from orchestration_service.platform_keys import key_of
from workflow_schemas.walls import WallLevel

PREFIX = "CLAUDE_CODE_"
MIB = 1024 * 1024
_THIS_MACHINE: Sequence[str] = ("localhost", "127.0.0.1", "[::1]")
COSMOS_NAME = r"^[^/\\?#]{1,255}$"
"""What Cosmos DB takes as the name of a database or container."""


def _is_http_address(value: str) -> str:
    AnyHttpUrl(value)
    return value.rstrip("/")


def _is_header_text(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("has characters no HTTP header can carry (often a line break at the end)")
    return value


def _is_account_key(value: SecretStr) -> SecretStr:
    try:
        base64.b64decode(value.get_secret_value(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is no account key: those are base64; copy the whole key, no connection string") from None  # hides it
    return value


def _is_blob_container(value: str) -> str:
    if not 3 <= len(value) <= 63 or not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", value):
        raise ValueError("can name no blob container: 3 to 63 lower-case letters, digits and single hyphens between them")
    return value


HttpAddress = Annotated[str, AfterValidator(_is_http_address)]
HeaderSecret = Annotated[SecretStr, AfterValidator(_is_header_text)]
AccountKey = Annotated[SecretStr, AfterValidator(_is_account_key)]
BlobContainerName = Annotated[str, AfterValidator(_is_blob_container)]


class Settings(BaseSettings):
    """The settings of one service process."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",  # the agent's own command line reads variables of the same prefix
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    instance_id: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")
    """Id of the platform instance that is served, a GUID; requests for another one are refused."""
    api_key: HeaderSecret = Field(min_length=8)
    """The key callers send in X-API-KEY: the value behind FoundationaLLM:APIEndpoints:ClaudeCode:Essentials:APIKey."""
    instance_name: str = "claude-code"
    """Name of this replica in the status answer."""
    data_dir: Path = Path(".data")
    """Folder for operations and, when embedded, everything the Context API stores."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    probe_port: int | None = Field(default=None, ge=0, le=65535)
    """Port of probes and metrics (/live, /ready, /metrics), for the cluster and not for callers; without one there are none."""
    drain_seconds: float = Field(default=0, ge=0, le=300, allow_inf_nan=False)
    """How long to go on serving after SIGTERM while no longer being ready, so that a load balancer can look away first."""

    context_url: HttpAddress | None = None
    """Address of the Context API; without one an embedded Context API is used."""
    context_api_key: HeaderSecret | None = None
    """Key of the Context API; needed together with its address."""
    session_language: Literal["Python", "CSharp"] = "Python"
    """Language whose pool of the platform's Context API holds our image; it only selects the pool."""

    sandboxes: Literal["local", "container", "session-pool"] = "local"
    """Where the embedded Context API finds sandboxes: behind bubblewrap on this machine, in containers, or in Azure session pools."""
    container_image: str = Field(default="claude-code-runner:dev", min_length=1)
    """Image of sandboxes in containers; it must be on the engine already (./dev image), none is ever pulled."""
    container_engine_url: str | None = Field(default=None, pattern=r"^unix:///.+")
    """Socket of Docker; without one DOCKER_HOST or the usual places."""
    sandbox_max_cpus: float = Field(default=USUAL_SIZE.cpus or 0, gt=0, le=1024, allow_inf_nan=False)
    """The most processors a workflow may ask for; once set, sandboxes of those that ask for none have no more either."""
    sandbox_max_memory_mib: int = Field(default=(USUAL_SIZE.memory_bytes or 0) // MIB, ge=256)
    """The most memory a workflow may ask for, in MiB; also an upper bound for the others."""
    sandbox_max_processes: int = Field(default=USUAL_SIZE.processes or 0, ge=64)
    """The most processes a workflow may ask for; also an upper bound for the others."""
    sandbox_max_disk_mib: int = Field(default=(USUAL_SIZE.disk_bytes or 0) // MIB, ge=256)
    """The most space for files a workflow may ask for, in MiB; also an upper bound for the others."""
    session_pools: tuple[SessionPool, ...] = ()
    """Session pools as JSON: [{"name": …, "endpoint": its pool management endpoint, "region": …, "max_sessions": …}, …]."""
    session_pool_key: SecretStr | None = None
    """Makes session identifiers unguessable, 16 bytes or more, the same for all replicas; make one with: openssl rand -hex 32."""
    session_pool_token: HeaderSecret | None = None
    """A token for the pools, for emulators; without one the process's own Azure identity is used."""
    session_pool_kind: Literal["custom-container", "code-interpreter"] = "custom-container"
    """What the pools are made of; turns need our image, so a pool of the platform's own code interpreter is refused."""
    session_pool_api_version: str = Field(default=POOL_API_VERSION, pattern=r"^\d{4}-\d{2}-\d{2}(-preview)?$")
    """The `api-version` of calls to the pools, a date."""
    session_pool_wait_seconds: float = Field(default=300, ge=0, le=900, allow_inf_nan=False)
    """How long a turn waits for room in the pools before it fails; together with the longest turn it should stay below 1800."""
    minimum_wall: WallLevel | None = None
    """The weakest wall between agent and runner that any turn may run behind; a workflow may demand more. Not set: any."""

    model_access_url: HttpAddress | None = None
    """Address of this replica as sandboxes with a network reach it; workflows may then send model calls there. Without one none can."""
    model_access_key: SecretStr | None = None
    """Signs the tokens for such calls, 16 bytes or more, the same for all replicas; make one with: openssl rand -hex 32."""
    model_access_plain_http: bool = False
    """Whether that address may be http where it is not on this machine: for networks inside a cluster that are trusted."""

    anthropic_api_key: HeaderSecret | None = Field(
        default=None, validation_alias=AliasChoices(f"{PREFIX}ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY")
    )
    """Key of the model provider; wins over the key the platform's endpoint configuration names."""
    anthropic_base_url: HttpAddress | None = Field(
        default=None, validation_alias=AliasChoices(f"{PREFIX}ANTHROPIC_BASE_URL", "ANTHROPIC_BASE_URL")
    )
    """Address of the model provider; wins over the address of the platform's endpoint configuration."""

    price_table: str | None = None
    """What models cost, instead of the shipped prices: path of a JSON file, or the JSON itself (docs/models.md)."""

    cosmos_endpoint: AccountAddress | None = None
    """Cosmos DB account for operations and, when embedded, file records; without one SQLite in the data folder is used."""
    cosmos_key: AccountKey | None = Field(default=None, min_length=1)
    """Key of the Cosmos DB account; without one the process's own Azure identity is used (preferred)."""
    cosmos_database: str = Field(default="database", pattern=COSMOS_NAME)
    """Database in that account; the platform's is called `database`."""
    cosmos_container: str = Field(default="ClaudeCode", pattern=COSMOS_NAME)
    """Container for operations, partitioned by `/pk`; it belongs to this service alone."""
    cosmos_context_container: str = Field(default="Context", pattern=COSMOS_NAME)
    """Container for records of the embedded Context API, partitioned by `/upn`; the platform's is called `Context`."""
    blob_endpoint: AccountAddress | None = None
    """Blob service of the storage account that goes with Cosmos DB, such as https://NAME.blob.core.windows.net."""
    blob_key: AccountKey | None = Field(default=None, min_length=1)
    """Key of the storage account; without one the process's own Azure identity is used (preferred)."""
    blob_container: BlobContainerName = "claude-code-operations"
    """Blob container for what is too large for a document; files of the embedded Context API go to one named like the instance."""
    create_missing_stores: bool = False
    """Whether to make the database and the containers that are not there: for emulators and first trials."""
    state_api_url: HttpAddress | None = None
    """Address of the platform's State API, which then shows status and results too."""
    state_api_key: HeaderSecret | None = None
    """Key of the State API; needed together with its address."""

    max_body_bytes: int = Field(default=64 * MIB, ge=1024, le=1024 * MIB)
    """Largest request body accepted, in bytes."""
    max_header_bytes: int = Field(default=256 * 1024, ge=16 * 1024, le=4 * MIB)
    """Largest request head accepted, in bytes: the identity header names every group of the user."""
    sync_timeout_seconds: float = Field(default=1740, gt=0, le=7200, allow_inf_nan=False)
    """How long a synchronous completion waits; afterwards the caller is told to poll. Below the platform's 1800."""
    keep_alive_seconds: float = Field(default=15, gt=0, le=300, allow_inf_nan=False)
    """Pause after which an idle event stream sends a comment, so that proxies keep it open."""
    lease_seconds: float = Field(default=30, ge=1, le=3600, allow_inf_nan=False)
    """How long a turn stays with this process without a sign of life; afterwards another one takes it over."""
    operations_kept_days: int = Field(default=30, ge=1, le=3650)
    """How long requests, activity and messages of ended turns are kept; their results and the files stay."""
    finished_operations_kept: int = Field(default=1000, ge=10, le=1_000_000)
    """How many ended operations are answered from memory; others come from the store."""

    @model_validator(mode="after")
    def _context_is_whole(self) -> Self:
        if (self.context_url is None) != (self.context_api_key is None):
            missing = "CONTEXT_API_KEY" if self.context_url else "CONTEXT_URL"
            raise ValueError(f"{PREFIX}{missing} is missing: set both, or neither for the embedded Context API")
        if self.session_language != "Python" and self.is_embedded:
            raise ValueError(f"{PREFIX}SESSION_LANGUAGE would have no effect: the embedded Context API knows no other. Leave it out")
        return self

    @model_validator(mode="after")
    def _sandboxes_are_whole(self) -> Self:
        """Refuse a choice that would be without effect: who believes work to be in a pool must not find it on this machine."""
        if self.sandboxes != "local" and not self.is_embedded:
            raise ValueError(f"{PREFIX}SANDBOXES is {self.sandboxes!r}, but sandboxes come from {PREFIX}CONTEXT_URL: set only one of them")
        if self.sandboxes == "session-pool":
            if not self.session_pools or self.session_pool_key is None:
                missing = "SESSION_POOL_KEY" if self.session_pools else "SESSION_POOLS"
                raise ValueError(f"{PREFIX}{missing} is missing: session pools need their addresses and a key for identifiers")
            if len(self.session_pool_key.get_secret_value().encode()) < SHORTEST_KEY:
                raise ValueError(f"{PREFIX}SESSION_POOL_KEY is too short: {SHORTEST_KEY} bytes at least, from: openssl rand -hex 32")
            if len({pool.name for pool in self.session_pools}) != len(self.session_pools):
                raise ValueError(f"{PREFIX}SESSION_POOLS has two pools of one name")
            if self.session_pool_kind == "code-interpreter":
                raise ValueError(
                    f"{PREFIX}SESSION_POOL_KIND is 'code-interpreter', but such a pool has no runner: no turn could run there. Make "
                    "a pool of kind 'custom-container' with this project's image; it serves the platform's code interpreter tool too"
                )
        elif set_here := sorted(name for name in self.model_fields_set if name.startswith("session_pool")):
            names = ", ".join(PREFIX + name.upper() for name in set_here)
            raise ValueError(f"{names} is set, but {PREFIX}SANDBOXES is {self.sandboxes!r}: set it to 'session-pool'")
        return self

    @model_validator(mode="after")
    def _model_access_is_sound(self) -> Self:
        """Refuse an address over which tokens would travel in the clear, or which nobody could reach."""
        url, key = self.model_access_url, self.model_access_key
        if url is None:
            return self
        address = AnyHttpUrl(url)
        if address.scheme != "https" and address.host not in _THIS_MACHINE and not self.model_access_plain_http:
            raise ValueError(
                f"{PREFIX}MODEL_ACCESS_URL is not https: tokens and prompts would travel in the clear. Use https, or allow it inside a "
                f"trusted network with {PREFIX}MODEL_ACCESS_PLAIN_HTTP=true"
            )
        if self.is_embedded and self.sandboxes != "session-pool":
            raise ValueError(
                f"{PREFIX}MODEL_ACCESS_URL would have no effect: {PREFIX}SANDBOXES is {self.sandboxes!r}, and those have no network. "
                "Leave it out"
            )
        if key is not None and len(key.get_secret_value().encode()) < SHORTEST_KEY:
            raise ValueError(f"{PREFIX}MODEL_ACCESS_KEY is too short: {SHORTEST_KEY} bytes at least, from: openssl rand -hex 32")
        return self

    @model_validator(mode="after")
    def _sizes_have_effect(self) -> Self:
        """Refuse a limit that nobody would keep."""
        set_here = sorted(PREFIX + name.upper() for name in self.model_fields_set if name.startswith("sandbox_max_"))
        if set_here and (not self.is_embedded or self.sandboxes == "session-pool"):
            place = f"{PREFIX}SANDBOXES is 'session-pool'" if self.is_embedded else f"sandboxes come from {PREFIX}CONTEXT_URL"
            raise ValueError(f"{', '.join(set_here)} would have no effect: {place}, and the pool decides how large they are. Leave it out")
        return self

    @model_validator(mode="after")
    def _state_api_is_whole(self) -> Self:
        if (self.state_api_url is None) != (self.state_api_key is None):
            missing = "STATE_API_KEY" if self.state_api_url else "STATE_API_URL"
            raise ValueError(f"{PREFIX}{missing} is missing: set both, or neither to leave the State API alone")
        return self

    @model_validator(mode="after")
    def _accounts_are_whole(self) -> Self:
        """Refuse half of a choice: what was meant for Azure must not land in a local file."""
        named = sorted(name for name in self.model_fields_set if name.startswith(("cosmos_", "blob_")) and getattr(self, name) is not None)
        for needed in ("cosmos_endpoint", "blob_endpoint"):
            if named and getattr(self, needed) is None:
                others = ", ".join(PREFIX + name.upper() for name in named)
                raise ValueError(f"{PREFIX}{needed.upper()} is missing, but there is {others}: set both addresses, or none of these")
        if self.cosmos_endpoint and self.is_embedded:
            try:
                _is_blob_container(self.instance_id.lower())
            except ValueError as error:
                raise ValueError(f"{PREFIX}INSTANCE_ID {error}; the embedded Context API keeps files in one of that name") from None
        return self

    @property
    def largest_sandbox(self) -> SandboxSize:
        """What a sandbox may have at most; in a session pool the pool decides, and nothing is refused here."""
        if self.sandboxes == "session-pool":
            return SandboxSize()
        return SandboxSize(
            cpus=self.sandbox_max_cpus,
            memory_bytes=self.sandbox_max_memory_mib * MIB,
            processes=self.sandbox_max_processes,
            disk_bytes=self.sandbox_max_disk_mib * MIB,
        )

    @property
    def model_access_secret(self) -> bytes | None:
        """What signs tokens for model calls; None for a key of each process's own."""
        return self.model_access_key.get_secret_value().encode() if self.model_access_key else None

    @property
    def is_embedded(self) -> bool:
        """Whether the Context API runs inside this service."""
        return self.context_url is None


def load_settings(*, platform: Mapping[str, Any] | None = None, **overrides: Any) -> Settings:
    """Read the settings; ``overrides`` win over the environment, that over the file, and that over what the platform's store says.

    Args:
        platform: Values by field, as `PlatformConfiguration.settings` returns them.
        overrides: Values by field.

    Raises:
        SettingsError: A setting is missing or wrong; the message names each and says what belongs there.
    """
    nearby = set_nearby()
    farther = {name: value for name, value in (platform or {}).items() if name not in nearby}
    try:
        return Settings(**{**farther, **overrides})
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        names = tuple(name for name in map(_variable, problems) if name)
        lines = "\n".join(f"  {_sentence(problem, farther)}" for problem in problems)
        raise SettingsError(f"The service cannot start with these settings:\n{lines}", names) from None  # hides secrets


def variable_of(field: str) -> str:
    """Return the environment variable of a setting; the first one, where it has two."""
    alias = Settings.model_fields[field].validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else PREFIX + field.upper()


def set_in_environment() -> dict[str, Any]:
    """Return what the environment sets, by field."""
    return _by_field(EnvSettingsSource(Settings)())


def set_in_file() -> dict[str, Any]:
    """Return what the file sets, by field."""
    return _by_field(DotEnvSettingsSource(Settings)())


def set_nearby() -> dict[str, Any]:
    """Return what environment and file set, by field."""
    return {**set_in_file(), **set_in_environment()}


def _by_field(values: Mapping[str, Any]) -> dict[str, Any]:
    """Name values as fields are named; a source names a field with two variables by the first of them."""
    fields = {variable_of(name): name for name in Settings.model_fields}
    return {fields.get(name, name): value for name, value in values.items()}


def _variable(problem: ErrorDetails) -> str:
    if not problem["loc"]:
        return ""
    name = str(problem["loc"][0])
    return name if name.isupper() else PREFIX + name.upper()


def _sentence(problem: ErrorDetails, farther: Mapping[str, Any]) -> str:
    name = _variable(problem)
    if not name:
        return problem["msg"].removeprefix("Value error, ")
    setting = name.removeprefix(PREFIX).lower()
    field = Settings.model_fields.get(setting)
    meaning = (field.description or "") if field else ""
    what = "is missing" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
    key = key_of(setting)
    where = f"App Configuration has it as {key}: correct it there." if setting in farther else f"App Configuration as {key}."
    return f"{name}: {what}. It is: {meaning} " + (where if setting in farther else f"Set it in the environment, in '.env', or in {where}")
