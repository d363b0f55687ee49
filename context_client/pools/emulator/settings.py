"""What can be chosen about the emulated pool; the defaults are the pool as the platform deploys it."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from context_client.pools.baseline import fact


class EmulatorSettings(BaseModel):
    """One emulated pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_key: SecretStr = Field(description="Key that tokens must be signed with, see `local_tokens.py`.")
    max_sessions: int = Field(default=10, ge=1, description="How many sessions may hold a slot.")
    cooldown_seconds: float = Field(
        default=300.0, ge=0, description="How long a slot is held after the last call; real pools take 300 to 3600."
    )
    full_status: int = Field(
        default_factory=lambda: int(fact("capacity.full_status")), description="How it refuses when it is full: 429, 500 or 404."
    )
    retry_after_seconds: int | None = Field(default=None, ge=0, description="`Retry-After` of that refusal; real pools send none.")
    upload_limit_bytes: int = Field(
        default_factory=lambda: int(fact("limit.upload_bytes")), gt=0, description="Longest request body; more gets 413."
    )
    request_seconds: float = Field(
        default_factory=lambda: float(fact("limit.request_seconds")), gt=0, description="After which an open request is cut."
    )
    allocation_seconds: float = Field(default=0.0, ge=0, description="How long a new session takes; real ones about 0.4.")
    clock_ahead_seconds: float = Field(default=0.0, description="How far its clock is ahead of this machine's.")
    timing_headers: bool = Field(
        default_factory=lambda: bool(fact("timing.custom_containers_send_them")),
        description="Send the timing headers; by the documentation custom containers don't have them.",
    )
