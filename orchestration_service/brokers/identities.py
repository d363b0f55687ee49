"""What routes without a key prove themselves with: asked for once, kept for all calls, renewed ahead.

The clouds' packages are extras, so each is imported when a route first needs it, in a thread, because it takes long.
"""

import importlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any

import anyio

from orchestration_service.brokers.credentials import AwsKeys, AwsRole, EntraIdentity, GoogleIdentity, GoogleKey
from orchestration_service.brokers.errors import IdentityAway, RouteUnusable
from orchestration_service.brokers.kept import Kept, Lasting, Value

_MOST_KEPT = 64
_ASK_SECONDS = 30.0


class Identities:
    """Tokens and temporary keys, each by whom it is of."""

    def __init__(self, stack: AsyncExitStack) -> None:
        """Prepare; nothing is opened before it is needed.

        Args:
            stack: closes what was opened.
        """
        self._stack = stack
        self._entra: Any = None
        self._kept: OrderedDict[object, Kept[Any]] = OrderedDict()

    async def bearer(self, credential: EntraIdentity | GoogleKey | GoogleIdentity) -> str:
        """Give a token that is sent as it is.

        Raises:
            UpstreamFault: there is none to be had.
        """

        async def fetch() -> Lasting[str]:
            if isinstance(credential, EntraIdentity):
                return await self._entra_token(credential.scope)
            module = await load("google_identity", "vertex")
            return await _in_time(module.fetch_google_token(credential), "Google Cloud")

        token: str = await self._of(credential, fetch).get()
        return token

    async def role(self, credential: AwsRole, region: str) -> AwsKeys:
        """Give temporary keys of a role in AWS.

        Raises:
            UpstreamFault: there are none to be had.
        """

        async def fetch() -> Lasting[AwsKeys]:
            module = await load("aws_identity", "bedrock")
            token = await self.bearer(EntraIdentity(scope=credential.scope))
            return await _in_time(module.take_role(credential.role_arn, region, token), "AWS")

        keys: AwsKeys = await self._of((credential, region), fetch).get()
        return keys

    def forget(self, credential: object, region: str | None) -> None:
        """Forget what an endpoint refused, so that the next call asks anew."""
        self._kept.pop(credential, None)
        self._kept.pop((credential, region), None)

    def _of(self, owner: object, fetch: Callable[[], Awaitable[Lasting[Any]]]) -> Kept[Any]:
        kept = self._kept.pop(owner, None) or Kept(fetch)
        self._kept[owner] = kept
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return kept

    async def _entra_token(self, scope: str) -> Lasting[str]:
        if self._entra is None:
            module = await load("entra_identity", "azure")
            self._entra = self._entra or module.EntraIdentityTokens(self._stack)
        return await _in_time(self._entra.fetch(scope), "Microsoft Entra")


async def load(module: str, extra: str) -> ModuleType:
    """Import a module of this package that needs an extra.

    Raises:
        RouteUnusable: the extra is not installed.
    """
    try:
        return await anyio.to_thread.run_sync(importlib.import_module, f"orchestration_service.brokers.{module}")
    except ModuleNotFoundError as error:
        raise RouteUnusable(f"the service was installed without the extra {extra!r}, which this model's provider needs") from error


async def _in_time(fetching: Awaitable[Lasting[Value]], issuer: str) -> Lasting[Value]:
    try:
        with anyio.fail_after(_ASK_SECONDS):
            return await fetching
    except TimeoutError as error:
        raise IdentityAway(issuer) from error
