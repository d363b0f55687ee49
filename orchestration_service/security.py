"""Who may come in, and on whose behalf.

The platform is trusted by its key; the user is whoever the platform names. Order matters: the wrong instance is refused
before the key is looked at, as the platform's own services do, and nothing about an operation is said before both hold.
"""

from __future__ import annotations

import hmac
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from pydantic import SecretStr

from context_client.errors import IdentityError
from context_client.identity import UserIdentity
from orchestration_service.errors import IdentityRefused, InstanceRefused, KeyRefused

API_KEY_HEADER = "X-API-KEY"
IDENTITY_HEADER = "X-USER-IDENTITY"
UPN_LIMIT = 1024
_OVERLAP_SECONDS = 3600.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Caller:
    """A user the platform vouches for."""

    identity: UserIdentity
    """The user."""
    identity_header: str = field(repr=False)
    """The identity as it is to be passed on to other services, ASCII."""

    @property
    def upn(self) -> str:
        """The user's principal name."""
        return self.identity.upn


class HeaderLists(Protocol):
    """The headers of a request, of any web framework."""

    def getlist(self, key: str) -> list[str]:
        """Return every value sent under a name, whatever its case."""
        ...


class Doorkeeper:
    """Admits requests that carry our key, mean our instance and name a user.

    After a key was replaced, the one before it is admitted for an hour: the platform's services learn of the new one at their own time.

    Args:
        instance_id: The platform instance served.
        api_key: The key callers have to show.
    """

    def __init__(self, *, instance_id: str, api_key: SecretStr) -> None:
        self.instance_id = instance_id
        self._instance = instance_id.casefold()
        self._key = self._key_before = api_key.get_secret_value().encode()
        self._replaced = 0.0
        # the same few users poll ten times a second, and a header with many groups costs a millisecond to read
        self._identify = lru_cache(maxsize=256)(_identify)

    def replace_key(self, api_key: SecretStr) -> bool:
        """Take another key from now on; tell whether it is another one."""
        fresh = api_key.get_secret_value().encode()
        if hmac.compare_digest(fresh, self._key):
            return False
        self._key_before, self._key, self._replaced = self._key, fresh, time.monotonic()
        return True

    def admit(self, instance_id: str, headers: HeaderLists) -> Caller:
        """Return the caller of a request.

        Raises:
            InstanceRefused: Another instance is meant.
            KeyRefused: The key is missing or wrong.
            IdentityRefused: No user is named, or not readably.
        """
        self.check_instance(instance_id)
        self._check_key(headers)
        values = headers.getlist(IDENTITY_HEADER)
        if len(values) != 1:
            raise IdentityRefused(
                f"The header {IDENTITY_HEADER!r} must come exactly once, it came {len(values)} times. "
                "Send the user's identity as JSON with at least 'upn'."
            )
        return self._identify(values[0])

    def check_instance(self, instance_id: str) -> None:
        """Raise `InstanceRefused` unless this is the instance we serve."""
        if instance_id.casefold() != self._instance:
            raise InstanceRefused(f"This service does not serve the instance {instance_id!r}. Check the instance id in the path.")

    def _check_key(self, headers: HeaderLists) -> None:
        values = headers.getlist(API_KEY_HEADER)
        if not values:
            raise KeyRefused(f"The header {API_KEY_HEADER!r} is missing. Send the key of this service in it.")
        shown = values[0].encode("latin-1", "replace")
        held = hmac.compare_digest(shown, self._key)
        if hmac.compare_digest(shown, self._key_before) and time.monotonic() - self._replaced < _OVERLAP_SECONDS:
            held = True
        if len(values) != 1 or not held:
            raise KeyRefused(f"The key in {API_KEY_HEADER!r} is not the key of this service.")


def _identify(header: str) -> Caller:
    text = _as_sent(header)
    try:
        identity = UserIdentity.from_header(text)
    except IdentityError as error:
        raise IdentityRefused(f"The header {IDENTITY_HEADER!r} cannot be read: {error}.") from error
    upn = identity.upn
    if not upn.strip() or len(upn) > UPN_LIMIT or _CONTROL.search(upn):
        raise IdentityRefused(
            f"The header {IDENTITY_HEADER!r} names no usable user: 'upn' must be text of 1 to {UPN_LIMIT} characters "
            "without control characters."
        )
    return Caller(identity, header if header.isascii() else identity.to_header())


def _as_sent(header: str) -> str:
    """Undo the latin-1 reading of header bytes where a sender wrote UTF-8."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeDecodeError:
        return header
