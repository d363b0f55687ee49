"""What can be chosen about operations in Cosmos DB: the adapter's own slice of the settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from context_client.embedded.azure_settings import AccountAddress, is_on_this_machine


class CosmosSettings(BaseModel):
    """Operations in an Azure Cosmos DB container, their large values in a Blob container."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    endpoint: AccountAddress
    """Address of the Cosmos DB account."""
    key: SecretStr | None = None
    """Key of that account; without one the process's own Azure identity is used (preferred)."""
    database: str = Field(default="database", min_length=1)
    """The database; the platform's is called `database`."""
    container: str = Field(default="ClaudeCode", min_length=1)
    """The container, partitioned by `/pk`; it belongs to this service alone."""
    blob_endpoint: AccountAddress
    """Address of the storage account's blob service."""
    blob_key: SecretStr | None = None
    """Key of that account; without one the process's own Azure identity is used (preferred)."""
    blob_container: str = Field(default="claude-code-operations", min_length=3, max_length=63)
    """The blob container for values that are too large for a document."""
    create_missing: bool = False
    """Make database and containers that are not there: for emulators and first trials; templates make them otherwise."""
    operation_days: int = Field(default=30, ge=1)
    """Days after their last change for which operations, journals, events and messages are kept."""
    conversation_days: int = Field(default=365, ge=1)
    """Days after their last change for which conversations and their turn numbers are kept."""
    inline_bytes: int = Field(default=256 * 1024, ge=1024, le=900 * 1024)
    """Largest value kept inside a document, in bytes as stored; larger ones go to the blob container."""
    request_seconds: float = Field(default=10, gt=0)
    """How long one request may take before it is tried again."""
    patience_seconds: float = Field(default=45, ge=0)
    """How long a call goes on trying while the store is throttled or unavailable; afterwards it raises `StoreBusy`."""

    @property
    def is_local(self) -> bool:
        """Whether the account is an emulator on this machine."""
        return is_on_this_machine(self.endpoint)
