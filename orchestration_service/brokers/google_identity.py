"""Tokens for Google Cloud, of a service account's key or of the service's own identity; needs the extra `vertex`.

The library blocks while it asks, so it is asked in a thread.
"""

import logging
from datetime import UTC
from functools import partial
from typing import Any

import anyio
import google.auth
import google.auth.transport.requests
from google.auth.credentials import with_scopes_if_required
from google.auth.exceptions import GoogleAuthError, TransportError
from google.oauth2 import service_account

from orchestration_service.brokers.credentials import GoogleIdentity, GoogleKey
from orchestration_service.brokers.errors import IdentityAway, IdentityRefused
from orchestration_service.brokers.kept import Lasting

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_ASK_SECONDS = 20

_log = logging.getLogger(__name__)


async def fetch_google_token(credential: GoogleKey | GoogleIdentity) -> Lasting[str]:
    """Get a token.

    Raises:
        IdentityRefused: the key is not accepted, or there is no identity here.
        IdentityAway: whoever issues tokens cannot be reached.
    """
    try:
        return await anyio.to_thread.run_sync(_ask, credential, abandon_on_cancel=True)
    except TransportError as error:
        _log.warning("No Google token: %s", error)
        raise IdentityAway("Google Cloud") from error
    except (GoogleAuthError, ValueError) as error:
        _log.warning("No Google token: %s", error)
        away = isinstance(error, GoogleAuthError) and error.retryable
        raise (IdentityAway if away else IdentityRefused)("Google Cloud") from error


def _ask(credential: GoogleKey | GoogleIdentity) -> Lasting[str]:
    known: Any
    if isinstance(credential, GoogleKey):
        load: Any = service_account.Credentials.from_service_account_info  # the library's types stop here
        known = load(credential.content(), scopes=_SCOPES)
    else:
        # without scopes at first: with them it asks another service of Google for the project's name, which may be out of reach
        found, _ = google.auth.default()
        scoped: Any = with_scopes_if_required
        known = scoped(found, _SCOPES)
    known.refresh(partial(google.auth.transport.requests.Request(), timeout=_ASK_SECONDS))
    if not known.token or known.expiry is None:
        raise ValueError("Google gave no token, or one without an end")
    return Lasting(str(known.token), known.expiry.replace(tzinfo=UTC).timestamp())
