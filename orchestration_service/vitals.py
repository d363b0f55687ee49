"""How this replica is: what it works on, whether it may be given more, and how much there is to do in all of the installation.

Load balancers and autoscalers ask this, every few seconds and of each replica; so what costs a query is kept for a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from orchestration_service.errors import StoreBusy, StoreError
from orchestration_service.keeper import Load
from orchestration_service.operations import OperationStore

Stage = Literal["starting", "serving", "draining"]
"""Where a process stands between its start and its end."""

_KEPT_SECONDS = 10.0  # as often as the keeper looks for turns without an owner, with the same query
_PATIENCE_SECONDS = 3.0  # below what probes wait for an answer


class Vitals:
    """Answers what is asked about a replica from outside.

    Args:
        store: Where the turns are.
        load: Gives what the replica has on its hands.
        instance_id: The platform instance it serves.
        kept_seconds: How long what the store said is kept.
        patience_seconds: How long the store is waited for.
    """

    def __init__(
        self,
        store: OperationStore,
        *,
        load: Callable[[], Load],
        instance_id: str,
        kept_seconds: float = _KEPT_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._store = store
        self._kept_seconds = kept_seconds
        self._patience_seconds = patience_seconds
        self._load = load
        self._instance_id = instance_id
        self._asking = asyncio.Lock()
        self._found: tuple[float, int] | None = None
        self._stage: Stage = "starting"

    @property
    def stage(self) -> Stage:
        """Where the process stands."""
        return self._stage

    @property
    def load(self) -> Load:
        """What this replica has on its hands."""
        return self._load()

    def serving(self) -> None:
        """Requests are answered from now on."""
        self._stage = "serving"

    def draining(self) -> None:
        """The end has been asked for."""
        self._stage = "draining"

    async def unfinished(self) -> int:
        """Return how many turns of the installation are in progress, whoever works on them or nobody; a moment old.

        Raises:
            StoreError: The store did not answer, or not in time.
        """
        async with self._asking:
            if self._found is None or time.monotonic() - self._found[0] > self._kept_seconds:
                self._found = None
                self._found = (time.monotonic(), await self._count())
            return self._found[1]

    async def trouble(self) -> str | None:
        """Return why no requests should be sent here at the moment; None if they should."""
        if self._stage != "serving":
            return f"This replica is {self._stage}."
        try:
            await self.unfinished()
        except StoreError as error:
            return f"The store of operations cannot be used: {error}"
        return None

    async def _count(self) -> int:
        try:
            async with asyncio.timeout(self._patience_seconds):
                return len(await self._store.unfinished(self._instance_id))
        except TimeoutError as error:
            raise StoreBusy(f"No answer within {self._patience_seconds:g} s.") from error
