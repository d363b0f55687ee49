"""Who a call is made for.

The platform trusts the `X-USER-IDENTITY` header alone, so the same value is read from the caller, acted upon, and
handed on. Fields we do not know are therefore kept, and the text is ASCII: .NET escapes names such as "Zoë" in
headers, and HTTP stacks disagree about anything else.
"""

import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from context_client.errors import IdentityError


def _absent_is_empty_text(value: Any) -> Any:
    return "" if value is None else value


def _absent_is_empty_list(value: Any) -> Any:
    return () if value is None else value


class UserIdentity(BaseModel):
    """The user of the platform for whom something is done; compare `upn` exactly, the platform's records do."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str | None = Field(default=None, description="Display name.")
    user_name: str | None = Field(default=None, description="Sign-in name, usually equal to the UPN.")
    user_id: str | None = Field(default=None, description="Object id in the identity provider.")
    upn: Annotated[str, BeforeValidator(_absent_is_empty_text)] = Field(
        default="",
        description="User principal name: owner of every record, kept in its case; empty when the caller sent none.",
    )
    associated_with_access_token: Annotated[bool, BeforeValidator(bool)] = Field(
        default=False, description="True when an agent access token stands for the user."
    )
    group_ids: Annotated[tuple[str, ...], BeforeValidator(_absent_is_empty_list)] = Field(
        default=(), description="Security groups the user is a member of."
    )

    @classmethod
    def from_header(cls, text: str) -> Self:
        """Read the identity header.

        Args:
            text: The header's value, a JSON object with case-sensitive names.

        Raises:
            IdentityError: The text is not JSON, not an object, or a known field has the wrong type.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise IdentityError(f"the identity header is not JSON ({error}); send an object with 'upn'") from error
        if not isinstance(value, dict):
            raise IdentityError(f"the identity header holds a JSON {type(value).__name__}; send an object with 'upn'")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            fields = sorted({str(problem["loc"][0]) for problem in error.errors()})
            raise IdentityError(f"the identity header has values of the wrong type in {fields!r}; send text") from error

    def to_header(self) -> str:
        """Write the header's value: one line of ASCII JSON, unknown fields included."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=True)
