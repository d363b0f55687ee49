"""Hands a request on to the sandbox behind a slot, and its answer back, piece by piece."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import cast

import anyio
import httpx

from context_client.embedded.provider import SandboxEndpoint, SandboxProvider
from context_client.pools.baseline import fact
from context_client.pools.emulator.answers import Cut, Receive, Refused, Send, begin
from context_client.pools.emulator.asked import Asked
from context_client.pools.emulator.slots import Slot, Slots
from context_client.sandboxes.errors import SandboxEnded, SandboxError, SandboxPoolFull

_USER = "pool"
_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
    | {"host", "authorization", "date", "server"}  # the token is for the pool and no business of the sandbox
)
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=8)


@dataclass(eq=False)
class Passed:
    """One request on its way through."""

    asked: Asked
    """What was asked."""

    slot: Slot
    """Whose sandbox answers; another one if the first is gone."""

    limit_bytes: int
    """Longest body."""

    headers: Callable[[], Mapping[str, str]]
    """What the pool adds to the answer, made when it begins."""

    cut_half: bool = False
    """Whether the connection is to end within the answer."""

    begun: bool = False
    """Whether the answer has begun."""


class Forwarder:
    """Speaks to the sandboxes of one provider."""

    def __init__(self, sandboxes: SandboxProvider) -> None:
        self._sandboxes = sandboxes
        self._plain = httpx.AsyncHTTPTransport(limits=_LIMITS)  # for endpoints without a way of their own
        self._ways: dict[str, httpx.AsyncBaseTransport] = {}

    async def aclose(self) -> None:
        """Close what is open."""
        await self.forget(set())
        await self._plain.aclose()

    async def forget(self, guids: set[str]) -> None:
        """Close the ways to all sandboxes but these."""
        for guid in self._ways.keys() - guids:
            await self._ways.pop(guid).aclose()

    async def forward(self, passed: Passed, slots: Slots, receive: Receive, send: Send) -> None:
        """Hand a request on; ends when the answer is sent, or its caller is gone.

        Raises:
            Refused: There is no sandbox to be had, or the body is too long.
            Cut: The sandbox broke off before it answered.
        """
        body = _Body(receive, passed.limit_bytes)
        await body.begin()
        failures: list[Refused | Cut] = []
        async with anyio.create_task_group() as group:

            async def work() -> None:
                try:
                    await self._work(passed, slots, body, send)
                except (Refused, Cut) as error:  # carried out of the group, which would wrap it
                    failures.append(error)
                group.cancel_scope.cancel()

            group.start_soon(work)
            await body.gone.wait()
            group.cancel_scope.cancel()
        if failures:
            raise failures[0]

    async def _work(self, passed: Passed, slots: Slots, body: "_Body", send: Send) -> None:
        endpoint = await self._endpoint(passed, slots)
        try:
            way = endpoint.transport or self._plain
            if endpoint.transport is not None:
                self._ways[passed.slot.guid] = endpoint.transport
            response = await way.handle_async_request(_request(endpoint, passed.asked, body))
        except httpx.TransportError as error:
            raise Cut from error
        stream = cast(httpx.AsyncByteStream, response.stream)
        try:
            headers = {name.lower(): value for name, value in response.headers.items() if name.lower() not in _HOP}
            passed.begun = True
            await begin(send, response.status_code, headers | dict(passed.headers()))
            async for chunk in stream:
                piece = chunk[: len(chunk) // 2] if passed.cut_half else chunk
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if passed.cut_half:
                    return
            await send({"type": "http.response.body", "body": b""})
        except httpx.TransportError:
            return  # what is sent is shorter than announced, so that the server ends the connection
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()

    async def _endpoint(self, passed: Passed, slots: Slots) -> SandboxEndpoint:
        try:
            return await self._sandboxes.endpoint(session_id=passed.slot.guid, upn=_USER)
        except SandboxEnded:
            slots.end(passed.slot)  # its container has ended; the pool puts another in its place
            passed.slot = slots.replace(passed.slot)
            slots.begin(passed.slot)
            return await self._sandboxes.endpoint(session_id=passed.slot.guid, upn=_USER)
        except SandboxPoolFull as error:
            slots.evict(passed.slot.identifier)
            raise Refused(fact("capacity.full_status"), fact("capacity.full_code"), str(error)) from error
        except SandboxError as error:
            slots.evict(passed.slot.identifier)
            raise Refused(503, "SessionNotReady", str(error)) from error


def _request(endpoint: SandboxEndpoint, asked: Asked, body: "_Body") -> httpx.Request:
    base = httpx.URL(endpoint.base_url)
    url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + asked.target)
    headers = {name: value for name, value in asked.headers.items() if name not in _HOP} | dict(endpoint.headers)
    headers["host"] = url.netloc.decode("ascii")
    timeout = httpx.Timeout(endpoint.timeout_seconds).as_dict()
    if body.whole is not None:
        headers.pop("content-length", None)
        return httpx.Request(asked.method, url, headers=headers, content=body.whole, extensions={"timeout": timeout})
    if "content-length" not in headers:
        headers["transfer-encoding"] = "chunked"
    return httpx.Request(asked.method, url, headers=headers, stream=body, extensions={"timeout": timeout})


class _Body(httpx.AsyncByteStream):
    """The body of a request: whole if it came in one piece, else as it comes; and whether its sender is still there."""

    def __init__(self, receive: Receive, limit_bytes: int) -> None:
        self._receive = receive
        self._left = limit_bytes
        self._first = b""
        self._finished = anyio.Event()
        self.whole: bytes | None = None
        self.gone = _Gone(self._finished, receive)

    async def begin(self) -> None:
        """Receive the first piece."""
        message = await self._receive()
        self._first = self._counted(message.get("body", b""))
        if not message.get("more_body", False):
            self.whole = self._first
            self._finished.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise httpx.WriteError("the caller left")
            yield self._counted(message.get("body", b""))
            if not message.get("more_body", False):
                break
        self._finished.set()

    def _counted(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise Refused(fact("limit.upload_status"), "PayloadTooLarge", "The body is longer than allowed.")
        return piece


class _Gone:
    """Waits until the caller has left; only one may receive at a time, so not before the body was read."""

    def __init__(self, finished: anyio.Event, receive: Receive) -> None:
        self._finished = finished
        self._receive = receive

    async def wait(self) -> None:
        """Return when the caller has left."""
        await self._finished.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
