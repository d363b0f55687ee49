"""A caller of the service during a fault: starts a completion, polls it through whichever replica answers, and notes what it sees."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.faults.replica import API_KEY, INSTANCE, Replica

POLL_SECONDS = 0.05
_START_SECONDS = 30.0


@dataclass
class Poller:
    """One caller and what it has seen."""

    headers: dict[str, str]
    replicas: list[Replica]
    refusals_allowed: bool
    """Whether an answer 5xx may come for a while, because the store does not answer."""
    operation_id: str = ""
    seen: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    """Moment, replica and state, where the state differs from the one before."""
    faults: list[str] = field(default_factory=list)
    refusals: int = 0
    _current: int = 0

    @property
    def status(self) -> str:
        return str(self.seen[-1][2]["status"]) if self.seen else ""

    @property
    def state(self) -> dict[str, Any]:
        return self.seen[-1][2]

    async def start(self, http: httpx.AsyncClient, body: dict[str, Any]) -> bool:
        """Start a completion; a caller that got no answer repeats the request under the same operation id."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            replica = self._replica()
            if replica is None:
                await asyncio.sleep(POLL_SECONDS)
                continue
            try:
                answer = await http.post(self._path(replica), json=body, headers=self.headers, timeout=20)
            except httpx.TransportError:
                self._next(replica)
                continue
            if answer.status_code == 202:
                self.operation_id = answer.json()["operation_id"]
                return True
            if not (self.refusals_allowed and answer.status_code in (503, 507)):
                self.faults.append(f"start was answered {answer.status_code}: {answer.text[:200]}")
            self._next(replica)
            await asyncio.sleep(POLL_SECONDS)
        return False

    async def until_ended(self, http: httpx.AsyncClient, seconds: float, *, enough: Callable[[], bool] = lambda: True) -> None:
        """Poll until the operation has ended, and what else is waited for has come, or time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            replica = self._replica()
            if replica is not None and await self.poll(http, replica) and self.status != "InProgress" and enough():
                return
            await asyncio.sleep(POLL_SECONDS)

    async def poll(self, http: httpx.AsyncClient, replica: Replica) -> bool:
        """Poll once; False when there was no answer."""
        try:
            answer = await http.get(f"{self._path(replica)}/{self.operation_id}/status", headers=self.headers, timeout=20)
        except httpx.TransportError as error:
            if replica.alive and not isinstance(error, httpx.ConnectError | httpx.RemoteProtocolError | httpx.ReadError):
                self.faults.append(f"a poll of replica {replica.name} broke: {type(error).__name__}")
            self._next(replica)
            return False
        if answer.status_code in (503, 507) and self.refusals_allowed:
            self.refusals += 1
            self._next(replica)
            return False
        problem = _problem(answer)
        if problem:
            self.faults.append(f"replica {replica.name}: {problem}")
            self._next(replica)
            return False
        self._take(replica, answer.json())
        return True

    def _take(self, replica: Replica, state: dict[str, Any]) -> None:
        before = self.status
        shown = (state["status"], json.dumps(state["result"], sort_keys=True))
        if self.seen and shown == (before, json.dumps(self.state["result"], sort_keys=True)):
            return
        if before == "Completed" or before == "Failed" and state["status"] != "Completed":
            self.faults.append(f"the end changed: {before} became {state['status']} at replica {replica.name}")
        self.seen.append((time.monotonic(), replica.name, state))

    def _replica(self) -> Replica | None:
        able: Sequence[Replica] = [replica for replica in self.replicas if replica.url and replica.alive]
        return able[self._current % len(able)] if able else None

    def _next(self, replica: Replica) -> None:
        self._current += 1

    def _path(self, replica: Replica) -> str:
        return f"{replica.url}/instances/{INSTANCE}/async-completions"


def headers_for(identity: str) -> dict[str, str]:
    """Headers of a caller with this identity."""
    return {"X-API-KEY": API_KEY, "X-USER-IDENTITY": identity}


def _problem(answer: httpx.Response) -> str:
    """Say what is wrong with an answer to a poll, or nothing."""
    if answer.status_code != 200:
        return f"a poll was answered {answer.status_code}: {answer.text[:200]}"
    try:
        state = answer.json()
    except ValueError:
        return f"a poll was answered with no JSON: {answer.text[:200]}"
    if state.get("status") not in ("InProgress", "Completed", "Failed"):
        return f"a poll has the status {state.get('status')!r}"
    result = state.get("result")
    if not result or not _words(result):
        return f"a poll says {state['status']} without words"
    return ""


def _words(result: dict[str, Any]) -> str:
    """What a person reads of a result."""
    texts = [result.get("completion"), *(item.get("value") for item in result.get("content") or [])]
    return " ".join(str(text) for text in texts if text).strip()
