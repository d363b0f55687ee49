"""Tokens of the service's own identity in Microsoft Entra; needs the extra `azure`."""

import importlib
import logging
from contextlib import AsyncExitStack

from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.identity.aio import DefaultAzureCredential

from orchestration_service.brokers.errors import IdentityAway, IdentityRefused
from orchestration_service.brokers.kept import Lasting

_log = logging.getLogger(__name__)


class EntraIdentityTokens:
    """Asks workload identity, managed identity, or whoever is signed in on a developer's machine."""

    def __init__(self, stack: AsyncExitStack) -> None:
        """Prepare; the identity is opened at the first question.

        Args:
            stack: closes it in the end.
        """
        self._stack = stack
        self._identity: DefaultAzureCredential | None = None
        self._given: set[str] = set()

    async def fetch(self, scope: str) -> Lasting[str]:
        """Get a token.

        Raises:
            IdentityRefused: there is no identity here, or it may not have this token.
            IdentityAway: whoever issues tokens cannot be reached.
        """
        if self._identity is None:
            importlib.import_module("aiohttp")  # its transport, which it imports only when it connects
            self._identity = await self._stack.enter_async_context(DefaultAzureCredential())
        try:
            token = await self._identity.get_token(scope)
        except (ServiceRequestError, ServiceResponseError) as error:
            _log.warning("No Entra token for %r: %s", scope, error)
            raise IdentityAway("Microsoft Entra") from error
        except (AzureError, ValueError) as error:
            _log.warning("No Entra token for %r: %s", scope, error)
            # the chain of identities says the same for "not here" and for "does not answer"
            raise (IdentityAway if scope in self._given else IdentityRefused)("Microsoft Entra") from error
        self._given.add(scope)
        return Lasting(token.token, float(token.expires_on))
