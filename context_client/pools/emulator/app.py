"""The emulated pool as an ASGI app: checks, slots, faults, and the way to the sandboxes behind.

Written to the bare protocol: every call of a turn passes through here, and a framework would be most of what it adds.
"""

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from email.utils import formatdate

import anyio

from context_client.embedded.provider import SandboxProvider
from context_client.pools.baseline import fact
from context_client.pools.emulator.answers import Cut, Receive, Refused, Scope, Send, answer_refusal, cut
from context_client.pools.emulator.asked import Asked, check, read_request
from context_client.pools.emulator.faults import Fault, Faults
from context_client.pools.emulator.forward import Forwarder, Passed
from context_client.pools.emulator.settings import EmulatorSettings
from context_client.pools.emulator.slots import Slot, Slots


class PoolEmulator:
    """A session pool; an ASGI app.

    Args:
        settings: What kind of pool.
        sandboxes: Where its sessions live; a session of ours is one of theirs, for the user `pool`.
        lifespan: Opened when the server starts and closed when it ends, for whoever has no other place for the sandboxes.
        clock: Seconds, for cooldowns.
    """

    def __init__(
        self,
        settings: EmulatorSettings,
        sandboxes: SandboxProvider,
        *,
        lifespan: AbstractAsyncContextManager[object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._key = settings.token_key.get_secret_value().encode()
        self._lifespan = lifespan
        self._forwarder = Forwarder(sandboxes)
        self.slots = Slots(maximum=settings.max_sessions, cooldown_seconds=settings.cooldown_seconds, clock=clock)
        """Who holds a slot; a test may evict."""
        self.faults = Faults()
        """What is to go wrong."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's own life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(read_request(scope), receive, send)

    async def aclose(self) -> None:
        """Close the connections to sandboxes."""
        await self._forwarder.aclose()

    async def _answer(self, asked: Asked, receive: Receive, send: Send) -> None:
        try:
            await self._serve(asked, receive, send)
        except Refused as refusal:
            await answer_refusal(send, refusal, {"date": self._date()})
        except Cut:
            await cut(send)

    async def _serve(self, asked: Asked, receive: Receive, send: Send) -> None:
        now = time.time() + self._settings.clock_ahead_seconds
        check(asked, token_key=self._key, now=now, upload_limit_bytes=self._settings.upload_limit_bytes)
        fault = self.faults.take(asked.path, asked.identifier)
        if fault is not None:
            await self._go_wrong(fault, asked)
        began = time.perf_counter()
        slot, is_new = await self._allocate(asked.identifier)
        allocated = time.perf_counter()
        self.slots.begin(slot)
        passed = Passed(
            asked=asked,
            slot=slot,
            limit_bytes=self._settings.upload_limit_bytes,
            headers=lambda: {"date": self._date()} | self._timing(slot, is_new, began, allocated),
            cut_half=fault is not None and fault.kind == "cut-half",
        )
        try:
            with anyio.move_on_after(self._settings.request_seconds) as limit:
                await self._forwarder.forward(passed, self.slots, receive, send)
            if limit.cancelled_caught and not passed.begun:
                raise Cut
        finally:
            self.slots.end(passed.slot)

    async def _allocate(self, identifier: str) -> tuple[Slot, bool]:
        slot = self.slots.find(identifier)
        if slot is not None:
            return slot, False
        slot = self.slots.take(identifier)
        if slot is None:
            raise self._full(self._settings.full_status, self._settings.retry_after_seconds)
        await self._forwarder.forget(self.slots.guids())
        if self._settings.allocation_seconds:
            await anyio.sleep(self._settings.allocation_seconds)
        return slot, True

    async def _go_wrong(self, fault: Fault, asked: Asked) -> None:
        if fault.kind == "full":
            raise self._full(fault.status if fault.status in {404, 429, 500} else 429, fault.retry_after_seconds)
        if fault.kind == "status":
            raise Refused(fault.status, headers=_retry_after(fault.retry_after_seconds))
        if fault.kind == "token":
            raise Refused(fact("token.refused_status"), "Unauthorized", "A valid bearer token is required.")
        if fault.kind == "identifier":
            raise Refused(fact("identifier.refused_status"), fact("identifier.character_code"), "The identifier is not valid.")
        if fault.kind == "cut":
            raise Cut
        if fault.kind == "evict":
            self.slots.evict(asked.identifier)
        if fault.kind == "slow":
            await anyio.sleep(fault.seconds)

    def _full(self, status: int, retry_after_seconds: int | None) -> Refused:
        maximum = self._settings.max_sessions
        message = f"{maximum} sessions are active, which is the maximum of this pool."
        return Refused(status, fact("capacity.full_code"), message, headers=_retry_after(retry_after_seconds))

    def _date(self) -> str:
        return formatdate(time.time() + self._settings.clock_ahead_seconds, usegmt=True)

    def _timing(self, slot: Slot, is_new: bool, began: float, allocated: float) -> dict[str, str]:
        if not self._settings.timing_headers:
            return {}
        now = time.perf_counter()
        overall, allocation, inside = (f"{seconds * 1000:.0f}" for seconds in (now - began, allocated - began, now - allocated))
        return {
            "x-ms-allocation-time": allocation,
            "x-ms-allocation-retries": "0",
            "x-ms-new-allocation": "true" if is_new else "false",
            "x-ms-preparation-time": "0",
            "x-ms-execution-request-time": inside,
            "x-ms-execution-read-response-time": "0",
            "x-ms-container-execution-duration": inside,
            "x-ms-total-execution-service-time": overall,
            "x-ms-overall-execution-time": overall,
            "x-ms-session-guid": slot.guid,
            "operation-id": uuid.uuid4().hex,
        }

    async def _live(self, receive: Receive, send: Send) -> None:
        """Hold the sandboxes while the server lives."""
        await receive()
        if self._lifespan is None:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        else:
            try:
                await self._lifespan.__aenter__()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            try:
                await send({"type": "lifespan.startup.complete"})
                await receive()
            finally:
                await self._lifespan.__aexit__(None, None, None)
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})


def _retry_after(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"retry-after": str(seconds)}
