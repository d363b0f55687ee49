"""What can be chosen about records and files in Azure: that adapter's own slice of the settings."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def is_on_this_machine(address: str) -> bool:
    """Whether an address is an emulator's."""
    return urlsplit(address).hostname in LOOPBACK


def _protected(value: str) -> str:
    scheme = urlsplit(value).scheme
    if scheme != "https" and not (scheme == "http" and is_on_this_machine(value)):
        raise ValueError("must begin with https:// (http:// only on this machine itself, for an emulator)")
    return value.rstrip("/")


AccountAddress = Annotated[str, AfterValidator(_protected)]
"""Address of an account: encrypted, unless it does not leave this machine."""


class AzureStorage(BaseModel):
    """The platform's own accounts: records in Cosmos DB, bytes in a Blob container named like the instance."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cosmos_endpoint: AccountAddress = Field(
        description="Cosmos DB account: FoundationaLLM:APIEndpoints:ContextAPI:Configuration:FileService:CosmosDB:Endpoint."
    )
    cosmos_key: SecretStr | None = Field(default=None, description="Its key; without one the process's own Azure identity is used.")
    database: str = Field(default="database", min_length=1, description="The platform's database.")
    container: str = Field(default="Context", min_length=1, description="The platform's container, partitioned by `/upn`.")
    blob_endpoint: AccountAddress = Field(description="Blob service of the platform's storage account.")
    blob_key: SecretStr | None = Field(default=None, description="Its key; without one the process's own Azure identity is used.")
    create_missing: bool = Field(default=False, description="Make database and containers that are not there: for emulators.")
    request_seconds: float = Field(default=20, gt=0, description="How long one request may take.")
