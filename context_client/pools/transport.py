"""The way to one session: whatever its caller sends through here finds its slot, its token and its pool."""

import json
from collections.abc import Callable

import httpx

from context_client.counted import counted
from context_client.pools.admission import Admission
from context_client.pools.session import Session

Connect = Callable[[], httpx.AsyncBaseTransport]


class SessionTransport(httpx.AsyncBaseTransport):
    """HTTP to the sandbox of one session, wherever it is."""

    def __init__(
        self, *, session: Session, admission: Admission, connect: Connect, upload_limit_bytes: int, clock: Callable[[], float]
    ) -> None:
        self._session = session
        self._admission = admission
        self._connect = connect
        self._identifier = f"identifier={session.identifier}".encode("ascii")
        self._upload_limit_bytes = upload_limit_bytes
        self._clock = clock
        self._wire: httpx.AsyncBaseTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request.

        A body over the pool's limit is answered 413 here, as the pool would after it had received all of it.

        Raises:
            PoolError: There is no slot to be had, or the pool does not let us in.
            httpx.TransportError: As usual.
        """
        if int(request.headers.get("content-length", 0)) > self._upload_limit_bytes:
            return self._too_large()
        if self._wire is None:
            self._wire = self._connect()
        response = await self._admission.call(self._wire, self._session, self._named(request))
        return counted(response, self._done)

    async def aclose(self) -> None:
        """Close the connections; the session goes on, and so may this transport."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.aclose()

    def _named(self, request: httpx.Request) -> httpx.Request:
        """Make sure that it is for this session and no other, whatever its caller wrote into the query."""
        if [part for part in request.url.query.split(b"&") if part.lower().startswith(b"identifier=")] == [self._identifier]:
            return request
        url = request.url.copy_set_param("identifier", self._session.identifier)
        return httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions)

    def _done(self) -> None:
        self._session.under_way -= 1
        self._session.last_used = self._clock()

    def _too_large(self) -> httpx.Response:
        if self._session.place is not None:
            self._session.place.counts.refused("too_large")
        message = f"the request body is longer than {self._upload_limit_bytes} bytes, the limit of session pools"
        body = json.dumps({"error": {"code": "PayloadTooLarge", "message": message}}).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return httpx.Response(413, headers=headers, stream=httpx.ByteStream(body))
