"""A small HTTP gateway between two parts, where calls get lost, late, twice or broken. It speaks over real sockets on both sides."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx

from tests.faults.choosing import Fault

Forward = Callable[["Request"], Awaitable["Answer"]]
Watch = Callable[["Passed", str], Awaitable[None]]
_LONGEST_HEAD = 1024 * 1024
_DROPPED = frozenset({"transfer-encoding", "connection", "content-length", "keep-alive", "date", "server"})


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_cut: bool = False


@dataclass
class Passed:
    """One call as the gateway saw it."""

    call: str
    number: int
    """Which call of its name it is, from 1."""
    target: str
    digest: str
    began: float
    status: int = 0
    """Status of the answer that was handed over whole; 0 when none was."""
    ended: float = 0.0
    note: str = ""


@dataclass
class Gateway:
    """Passes calls on, does the damage of a fault to some, and remembers all."""

    name: str
    classify: Callable[[str, str], str]
    forward: Forward
    fault: Fault | None = None
    watch: Watch | None = None
    passed: list[Passed] = field(default_factory=list)
    url: str = ""
    _counts: Counter[str] = field(default_factory=Counter)

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                if not await self._serve(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _serve(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one call; False when the connection is over."""
        call = self.classify(request.method, request.target)
        self._counts[call] += 1
        digest = hashlib.sha256(request.body).hexdigest()[:16]
        passed = Passed(call, self._counts[call], request.target, digest, time.monotonic())
        self.passed.append(passed)
        work = asyncio.ensure_future(self._answer(request, passed))
        gone = asyncio.ensure_future(_until_gone(reader))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                passed.note += " caller left"
                return False
            answer = work.result()
        finally:
            gone.cancel()
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):  # the call was given up; nobody hears how it went
                await work
            with suppress(asyncio.CancelledError):
                await gone
        if answer is None:
            return False
        writer.write(_written(answer))
        await writer.drain()
        if answer.is_cut:
            return False
        passed.status, passed.ended = answer.status, time.monotonic()
        return True

    async def _answer(self, request: Request, passed: Passed) -> Answer | None:
        if self.watch is not None:
            await self.watch(passed, "before")
        fault = self.fault
        hit = fault is not None and fault.damage and fault.call == passed.call and 0 <= passed.number - fault.at < fault.times
        answer = await (self._damaged(request, passed, fault) if hit and fault else self._forwarded(request, passed))
        if self.watch is not None:
            await self.watch(passed, "after")
        return answer

    async def _forwarded(self, request: Request, passed: Passed) -> Answer | None:
        try:
            return await self.forward(request)
        except httpx.TransportError as error:  # what the caller would have met without us
            passed.note += f" {type(error).__name__}"
            return None

    async def _damaged(self, request: Request, passed: Passed, fault: Fault) -> Answer | None:
        passed.note += f" {fault.damage}"
        if fault.damage == "dropped":
            return None
        if fault.damage == "error":
            return _error(fault)
        if fault.damage == "delayed":
            await asyncio.sleep(fault.seconds)
        if fault.damage == "duplicated":
            answers = await asyncio.gather(self._forwarded(request, passed), self._forwarded(request, passed))
            return answers[fault.seed % 2]
        answer = await self._forwarded(request, passed)
        if fault.damage == "lost" or answer is None:
            return None
        if fault.damage == "repeated":
            return await self._forwarded(request, passed)
        if fault.damage == "late":
            await asyncio.sleep(fault.seconds)
        if fault.damage == "error_after":
            return _error(fault)
        return Answer(answer.status, answer.headers, answer.body, is_cut=fault.damage == "cut")


@asynccontextmanager
async def open_gateway(gateway: Gateway) -> AsyncIterator[Gateway]:
    """Let a gateway listen on a free port."""
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(gateway.serve_connection(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=_LONGEST_HEAD)
    gateway.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield gateway
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def to_address(http: httpx.AsyncClient, base_url: str = "", *, skip: int = 0) -> Forward:
    """Forward to a server.

    Args:
        http: Carries the calls; its own base URL, if any, is not used.
        base_url: Where they go.
        skip: How many segments of the path are taken off.
    """

    async def forward(request: Request) -> Answer:
        target = "/" + "/".join(request.target.split("/")[1 + skip :])
        headers = [(name, value) for name, value in request.headers if name.lower() not in ("host", "connection", "content-length")]
        async with http.stream(request.method, f"{base_url}{target}", headers=headers, content=request.body, timeout=660) as response:
            body = b"".join([piece async for piece in response.aiter_raw()])
        kept = tuple((name, value) for name, value in response.headers.items() if name.lower() not in _DROPPED)
        return Answer(response.status_code, kept, body)

    return forward


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ", 2)
    headers = tuple((name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Request(method, target, headers, await reader.readexactly(length))


def _written(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} -", *(f"{name}: {value}" for name, value in answer.headers), f"content-length: {len(answer.body)}"]
    body = answer.body[: len(answer.body) // 2] if answer.is_cut else answer.body
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Wait until the caller closes. It sends nothing while it waits for an answer, so bytes are never taken away here."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.02)


def _error(fault: Fault) -> Answer:
    if fault.kind == "model_call":
        body = json.dumps({"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}).encode()
        return Answer(500, (("content-type", "application/json"),), body)
    texts = (b"", b'{"type":"about:blank","title":"Internal Server Error","status":500}')
    return Answer(500, (("content-type", "application/problem+json"),), texts[fault.seed % 2])
