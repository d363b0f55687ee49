"""Tokens with which the runner of one turn calls models through the gateway: signed, short-lived, good for one run. Pure but for the clock.

The signature only tells whether a token was ever issued by this installation, so that a replica without the run can say "not here". Whether
it still holds is known by the replica that owns the turn, and by nobody else: a token is worth nothing without it (`model_access`).
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass, field

from orchestration_service.errors import TokenRefused

_MARK = "cct1"
_FORM = re.compile(r"cct1\.([A-Za-z0-9-]{8,64})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class RunToken:
    """A token that was issued here."""

    run_id: str
    """The run it is for."""
    expires: int
    """Seconds since the epoch after which it is worth nothing."""
    text: str = field(repr=False)
    """The token as it travels."""


class RunTokens:
    """Issues tokens and reads them.

    Args:
        key: Signs them; the same for all replicas.
        instance_id: The platform instance; tokens of another one are refused.
    """

    def __init__(self, key: bytes, instance_id: str) -> None:
        self._key = key
        self._instance_id = instance_id.casefold()

    def issue(self, run_id: str, seconds: float) -> RunToken:
        """Return a new token for a run that holds for so long."""
        expires = int(time.time() + seconds) + 1
        nonce = secrets.token_urlsafe(32)
        return RunToken(run_id, expires, f"{_MARK}.{run_id}.{expires}.{nonce}.{self._signature(run_id, expires, nonce)}")

    def read(self, text: str) -> RunToken:
        """Return what a token says.

        Raises:
            TokenRefused: It was not issued by this installation, or is too old.
        """
        found = _FORM.fullmatch(text[:300])
        if found is None:
            raise TokenRefused("This is no token of a run.")
        run_id, expires, nonce, signature = found[1], int(found[2]), found[3], found[4]
        if not hmac.compare_digest(signature, self._signature(run_id, expires, nonce)):
            raise TokenRefused("This is no token of a run.")
        if expires < time.time():
            raise TokenRefused("The token of this run is too old.")
        return RunToken(run_id, expires, text)

    def _signature(self, run_id: str, expires: int, nonce: str) -> str:
        said = "\n".join((_MARK, self._instance_id, run_id, str(expires), nonce)).encode()
        return base64.urlsafe_b64encode(hmac.digest(self._key, said, hashlib.sha256)).rstrip(b"=").decode("ascii")
