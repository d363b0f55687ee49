"""Everything an administrator can set, read once at start.

Values come from the environment (``CLAUDE_CODE_…``) or a ``.env`` file in the working directory, the environment
winning. A wrong or missing value stops the start with the variable's name and what belongs there; secrets show up
neither in messages nor in ``repr``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AliasChoices, AnyHttpUrl, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from orchestration_service.errors import SettingsError

PREFIX = "CLAUDE_CODE_"
MIB = 1024 * 1024


def _is_http_address(value: str) -> str:
    AnyHttpUrl(value)
    return value.rstrip("/")


def _is_header_text(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("has characters no HTTP header can carry (often a line break at the end)")
    return value


HttpAddress = Annotated[str, AfterValidator(_is_http_address)]
HeaderSecret = Annotated[SecretStr, AfterValidator(_is_header_text)]


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

    context_url: HttpAddress | None = None
    """Address of the Context API; without one an embedded Context API is used."""
    context_api_key: HeaderSecret | None = None
    """Key of the Context API; needed together with its address."""

    anthropic_api_key: HeaderSecret | None = Field(
        default=None, validation_alias=AliasChoices(f"{PREFIX}ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY")
    )
    """Key of the model provider; wins over the key the platform's endpoint configuration names."""
    anthropic_base_url: HttpAddress | None = Field(
        default=None, validation_alias=AliasChoices(f"{PREFIX}ANTHROPIC_BASE_URL", "ANTHROPIC_BASE_URL")
    )
    """Address of the model provider; wins over the address of the platform's endpoint configuration."""

    max_body_bytes: int = Field(default=64 * MIB, ge=1024, le=1024 * MIB)
    """Largest request body accepted, in bytes."""
    max_header_bytes: int = Field(default=256 * 1024, ge=16 * 1024, le=4 * MIB)
    """Largest request head accepted, in bytes: the identity header names every group of the user."""
    sync_timeout_seconds: float = Field(default=1740, gt=0, le=7200, allow_inf_nan=False)
    """How long a synchronous completion waits; afterwards the caller is told to poll. Below the platform's 1800."""
    keep_alive_seconds: float = Field(default=15, gt=0, le=300, allow_inf_nan=False)
    """Pause after which an idle event stream sends a comment, so that proxies keep it open."""
    finished_operations_kept: int = Field(default=1000, ge=10, le=1_000_000)
    """How many ended operations are answered from memory; others come from the store."""

    @model_validator(mode="after")
    def _context_is_whole(self) -> Self:
        if (self.context_url is None) != (self.context_api_key is None):
            missing = "CONTEXT_API_KEY" if self.context_url else "CONTEXT_URL"
            raise ValueError(f"{PREFIX}{missing} is missing: set both, or neither for the embedded Context API")
        return self

    @property
    def is_embedded(self) -> bool:
        """Whether the Context API runs inside this service."""
        return self.context_url is None


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; ``overrides`` win over environment and file.

    Raises:
        SettingsError: A setting is missing or wrong; the message names each and says what belongs there.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        names = tuple(name for name in map(_variable, problems) if name)
        lines = "\n".join(f"  {_sentence(problem)}" for problem in problems)
        raise SettingsError(f"The service cannot start with these settings:\n{lines}", names) from None  # hides secrets


def _variable(problem: ErrorDetails) -> str:
    if not problem["loc"]:
        return ""
    name = str(problem["loc"][0])
    return name if name.isupper() else PREFIX + name.upper()


def _sentence(problem: ErrorDetails) -> str:
    name = _variable(problem)
    if not name:
        return problem["msg"].removeprefix("Value error, ")
    field = Settings.model_fields.get(name.removeprefix(PREFIX).lower())
    meaning = (field.description or "") if field else ""
    what = "is missing" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
    return f"{name}: {what}. It is: {meaning} Set it in the environment or in '.env'."
