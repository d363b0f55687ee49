"""What a route proves itself with, as far as it is no plain key: who issues the proof, not the proof itself.

Each is told apart by `kind`. The tokens that come of them are got by `tokens`.
"""

import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

FOUNDRY_SCOPE = "https://ai.azure.com/.default"
"""What tokens for Microsoft Foundry are asked for, if nothing else is said."""

AZURE_STS_SCOPE = "api://AzureADTokenExchange/.default"
"""What Entra tokens are asked for that are changed into credentials of another cloud."""


class _Credential(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def secrets(self) -> tuple[str, ...]:
        """Give what must not leave the broker in a text."""
        return ()


class EntraIdentity(_Credential):
    """The service's own identity in Microsoft Entra: workload identity, managed identity, or whoever is signed in."""

    kind: Literal["entra"] = "entra"
    """Tells it from the others."""
    scope: str = Field(FOUNDRY_SCOPE, min_length=1, description="What its tokens are asked for.")


class AwsKeys(_Credential):
    """An access key of AWS, lasting or temporary."""

    kind: Literal["aws_keys"] = "aws_keys"
    """Tells it from the others."""
    access_key_id: SecretStr = Field(description="Name of the key.")
    secret_access_key: SecretStr = Field(description="The key; it signs and is never sent.")
    session_token: SecretStr | None = Field(None, description="Token that belongs to a temporary key.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not all(self.secrets()):
            raise ValueError("a part of the AWS key is empty; check the settings it is read from")
        return self

    def secrets(self) -> tuple[str, ...]:
        """Give what must not leave the broker in a text."""
        parts = (self.secret_access_key, self.session_token, self.access_key_id)
        return tuple(part.get_secret_value() for part in parts if part is not None)


class AwsIdentity(_Credential):
    """The service's own identity in AWS: roles of service accounts, tasks or machines, the environment, a profile."""

    kind: Literal["aws_identity"] = "aws_identity"
    """Tells it from the others."""


class AwsRole(_Credential):
    """A role in AWS that the service's Entra identity may take."""

    kind: Literal["aws_role"] = "aws_role"
    """Tells it from the others."""
    role_arn: str = Field(pattern=r"\Aarn:[a-z0-9-]+:iam::\d{12}:role/[\w+=,.@/-]+\z", description="Name of the role.")
    scope: str = Field(AZURE_STS_SCOPE, min_length=1, description="What the Entra token is asked for that is changed into the role.")


class GoogleKey(_Credential):
    """A key of a Google service account."""

    kind: Literal["google_key"] = "google_key"
    """Tells it from the others."""
    key_json: SecretStr = Field(description="The key's file as JSON text, as Google gives it out.")

    @model_validator(mode="after")
    def _is_a_key(self) -> Self:
        key = self.content()
        missing = [name for name in ("client_email", "private_key", "token_uri") if not isinstance(key.get(name), str)]
        if key.get("type") != "service_account" or missing:
            raise ValueError("the Google key is no JSON file of a service account; it must have type, client_email, private_key, token_uri")
        return self

    def content(self) -> dict[str, str]:
        """Give the key's fields; none if it is no JSON object."""
        try:
            key = json.loads(self.key_json.get_secret_value())
        except ValueError:
            return {}
        return key if isinstance(key, dict) else {}

    def secrets(self) -> tuple[str, ...]:
        """Give what must not leave the broker in a text."""
        return (self.key_json.get_secret_value(), self.content().get("private_key", ""))


class GoogleIdentity(_Credential):
    """The service's own identity in Google Cloud: workload identity (federation too), or whoever is signed in."""

    kind: Literal["google_identity"] = "google_identity"
    """Tells it from the others."""


Credential = Annotated[EntraIdentity | AwsKeys | AwsIdentity | AwsRole | GoogleKey | GoogleIdentity, Field(discriminator="kind")]
"""Whatever a route may prove itself with besides a key or a token it is given."""
