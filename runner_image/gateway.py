"""Model calls over the network, where the service offers that: from the relay to its gateway, with a token the agent never sees.

The mailbox stays the way that always works. A call that the gateway does not answer goes through the mailbox, as do the calls after it if
nobody is there at all; only a stream of which the CLI has seen something cannot change its way any more. The CLI deals with a broken stream
by asking again for an answer in one piece, and those go through the mailbox (docs/decisions/0022).
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from runner_image.errors import GatewayUnusable
from runner_image.relay import DirectAnswer

if TYPE_CHECKING:
    from runner_image.gateway_client import GatewayClient


class Gateway:
    """The way to the service's gateway, once one is named.

    Args:
        tell: Told, in words for the user, that calls go through the mailbox instead.
    """

    def __init__(self, tell: Callable[[str], Awaitable[None]]) -> None:
        self._tell = tell
        self._client: GatewayClient | None = None
        self._opening: asyncio.Task[None] | None = None
        self._opened: list[GatewayClient] = []
        self._is_closed = False

    async def take(self, body: Mapping[str, Any]) -> None:
        """Take the service's word for where model calls go from now on; whether somebody is there is found out in the background."""
        await self._stop_opening()
        self._client = None  # streams that come over it end by themselves
        url, token = str(body.get("url") or ""), str(body.get("token") or "")
        if url and not self._is_closed:
            self._opening = asyncio.create_task(self._open(url, token))

    def stop(self) -> None:
        """Ask nothing more; open streams go on."""
        self._is_closed, self._client = True, None

    async def close(self) -> None:
        """Ask nothing more; open streams break off."""
        self.stop()
        await self._stop_opening()
        for client in self._opened:
            await client.close()

    async def ask(self, headers: dict[str, str], body: bytes) -> DirectAnswer | None:
        """Ask for a stream; None where the call has to go through the mailbox."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        client = self._client
        if client is None:
            return None
        try:
            return await client.ask(headers, body)
        except GatewayUnusable as error:
            if client is self._client:
                self._client = None
                await self._give_up(error)
            return None

    async def _open(self, url: str, token: str) -> None:
        # the HTTP client takes a tenth of a second to import, and only this needs it
        module = await asyncio.to_thread(importlib.import_module, "runner_image.gateway_client")
        try:
            client: GatewayClient = await module.open_client(url, token)
        except GatewayUnusable as error:
            await self._give_up(error)
        else:
            self._opened.append(client)
            self._client = None if self._is_closed else client

    async def _give_up(self, error: GatewayUnusable) -> None:
        await self._tell(f"The service's gateway for model calls was not used ({error}): they went through the mailbox.")

    async def _stop_opening(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
