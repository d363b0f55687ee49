"""The HTTP side of the gateway: finds out whether it is there, asks it, and tells its answers from those of others in between."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx

from runner_image.errors import GatewayUnusable
from runner_image.relay import DirectAnswer
from workflow_schemas.mailbox import CALL_HEADER
from workflow_schemas.model_stream import ModelStreamError, SseParser, encode_event, error_body

REACH_SECONDS = 5.0
"""How long the gateway may take to be found there; calls that are made meanwhile wait for it."""

SILENCE_SECONDS = 45.0
"""Longest silence within an answer: the gateway sends pings every ten seconds."""

_THERE, _ELSEWHERE = 204, 503
_SHOWN = 200


class GatewayClient:
    """Asks the gateway.

    Args:
        client: Speaks HTTP, and shows the token.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def find(self) -> None:
        """Find out whether the gateway is there and takes the token.

        Raises:
            GatewayUnusable: It is not, or does not.
        """
        try:
            async with asyncio.timeout(REACH_SECONDS):
                response = await self._client.get("")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise GatewayUnusable(f"it cannot be reached: {_words(error)}") from error
        if response.status_code not in (_THERE, _ELSEWHERE):
            raise GatewayUnusable(f"it answers with status {response.status_code}")

    async def ask(self, headers: dict[str, str], body: bytes) -> DirectAnswer | None:
        """Ask for a stream; None where this call has to go another way, and the next one need not.

        Raises:
            GatewayUnusable: The next one would not be answered either.
        """
        request = self._client.build_request("POST", "v1/messages", headers={**headers, "content-type": "application/json"}, content=body)
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise GatewayUnusable(f"it cannot be reached any more: {_words(error)}") from error
        except httpx.HTTPError:
            return None  # it was there, and the connection broke before an answer began
        try:
            return await _begun(response)
        except (httpx.HTTPError, ModelStreamError, ValueError):
            await response.aclose()
            return None  # nothing of its answer was seen
        except BaseException:
            await response.aclose()
            raise


async def open_client(url: str, token: str) -> GatewayClient:
    """Make a client for a gateway that is there.

    Raises:
        GatewayUnusable: Nobody is there, or not a gateway, or it does not take the token.
    """
    context = await asyncio.to_thread(ssl.create_default_context)  # whom the system trusts; reads many files
    client = httpx.AsyncClient(
        base_url=f"{url}/",
        headers={"authorization": f"Bearer {token}"},
        verify=context,
        timeout=httpx.Timeout(SILENCE_SECONDS, connect=REACH_SECONDS),
        follow_redirects=False,  # the token is for this host
        trust_env=False,
    )
    found = GatewayClient(client)
    try:
        await found.find()
    except BaseException:
        await found.close()
        raise
    return found


async def _begun(response: httpx.Response) -> DirectAnswer | None:
    """Return an answer from its first event on that says something, so that a failure before that keeps its status."""
    if CALL_HEADER not in response.headers:
        await response.aclose()
        if response.status_code >= 500:  # another replica has the run, or this one is being replaced
            return None
        raise GatewayUnusable(f"it answers with status {response.status_code}")
    if "text/event-stream" not in response.headers.get("content-type", ""):
        body = json.loads(await response.aread())
        return DirectAnswer(response.status_code, body, _seconds(response.headers.get("retry-after")))
    events = _events(response)
    first = await anext(events, None)
    if first is None:
        await response.aclose()
        return None
    if first["type"] == "error":
        await response.aclose()
        status, after = first.pop("status", None), _seconds(first.pop("retry_after", None))
        return DirectAnswer(status if isinstance(status, int) else 502, first, after)
    return DirectAnswer(200, events=_passed_on(first, events, response))


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream but for the pings, which are for us."""
    parser = SseParser()
    async for chunk in response.aiter_bytes():
        for event in parser.feed(chunk):
            if event["type"] != "ping":
                yield event


async def _passed_on(first: dict[str, Any], events: AsyncIterator[dict[str, Any]], response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield a stream for the CLI; one that breaks off ends with an error the CLI understands."""
    kind = first["type"]
    try:
        yield encode_event(first)
        async for event in events:
            kind = event["type"]
            yield encode_event(event)
    except (httpx.HTTPError, ModelStreamError) as error:
        yield encode_event(error_body("api_error", f"the connection to the service broke: {_words(error)}"))
    else:
        if kind not in ("message_stop", "error"):
            yield encode_event(error_body("api_error", "the connection to the service ended too early"))
    finally:
        await response.aclose()


def _seconds(value: object) -> float | None:
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= 3600 else None


def _words(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()[:_SHOWN]
