"""Steps, events and effects of operations in Cosmos DB, all in the operation's own partition.

Numbers without gaps come from ids: the document numbered n+1 can be created once, so whoever is told that it exists looks for
the end again. The end is remembered, which makes the usual append a single request.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from orchestration_service.operations.cosmos_documents import Create, Document, Replace
from orchestration_service.operations.cosmos_storage import CosmosStorage, attempts, check, operation_partition, short, to_json
from orchestration_service.operations.lease import ABSENT, Claim, EffectState
from orchestration_service.operations.model import RecordedStep, StoredEvent

CHUNKS_READ = 50
"""How many chunks of events are read at once."""
ENDS_KEPT = 2000
"""Of how many logs the end is remembered."""


class CosmosJournal:
    """The journal of operations.

    Args:
        storage: The container and the blobs.
    """

    def __init__(self, storage: CosmosStorage) -> None:
        self._storage = storage
        self._ends: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def record_step(self, operation_id: str, step: str, data: dict[str, Any], claim: Claim | None) -> None:
        """Add a line to the journal."""
        now = self._storage.now()
        packed = await self._storage.values.pack(f"steps/{short(operation_id)}", to_json(data))

        async def fields(first: int) -> Document:
            return {"last": first, "step": step, "recorded_at": now, **packed}

        await self._append(operation_id, "step", fields, claim, {"last_step": step, "updated_at": now})

    async def steps(self, operation_id: str) -> list[RecordedStep]:
        """Return the journal, oldest first."""
        text = "SELECT * FROM c WHERE c.pk = @pk AND c.kind = 'step' ORDER BY c.sequence"
        found = await self._storage.documents.query(operation_partition(operation_id), text)
        return [
            RecordedStep(step=line["step"], data=json.loads(await self._storage.values.unpack(line)), recorded_at=line["recorded_at"])
            for line in found
        ]

    async def append_events(self, operation_id: str, events: Sequence[dict[str, Any]], claim: Claim | None) -> list[StoredEvent]:
        """Number events and add them to the log as one chunk."""
        if not events:
            check(await self._storage.head(operation_id), claim)
            return []

        async def fields(first: int) -> Document:
            numbered = {"events": [{**event, "seq": first + place} for place, event in enumerate(events)]}
            packed = await self._storage.values.pack(f"events/{short(operation_id)}", to_json(numbered))
            return {"last": first + len(events) - 1, **packed}

        return _events(await self._storage.values.unpack(await self._append(operation_id, "events", fields, claim, {})))

    async def events(self, operation_id: str, after: int, limit: int) -> list[StoredEvent]:
        """Return events from the log."""
        text = f"SELECT TOP {CHUNKS_READ} * FROM c WHERE c.pk = @pk AND c.kind = 'events' AND c[\"last\"] > @after ORDER BY c.sequence"
        found: list[StoredEvent] = []
        last = after
        while len(found) < limit:
            chunks = await self._storage.documents.query(operation_partition(operation_id), text, after=last)
            for chunk in chunks:
                found += [event for event in _events(await self._storage.values.unpack(chunk)) if event.sequence > after]
                last = chunk["last"]
                if len(found) >= limit:
                    break
            if len(chunks) < CHUNKS_READ:
                break
        return found[:limit]

    async def begin_effect(self, operation_id: str, name: str, claim: Claim | None) -> EffectState:
        """Record that an effect is about to be done; return how far it had got before."""
        document = self._effect(operation_id, name, begun_by=claim.generation if claim else 0)
        outcome = await self._storage.write(operation_id, Create(document), claim=claim)
        if outcome.is_done:
            return ABSENT
        earlier = await self._find_effect(operation_id, name)
        if earlier is None or earlier["token"] == document["token"]:  # ours, from a try whose answer was lost
            return ABSENT
        return await self._state(earlier)

    async def end_effect(self, operation_id: str, name: str, outcome: dict[str, Any], claim: Claim | None) -> EffectState:
        """Record what came of an effect; the first outcome stays."""
        packed = await self._storage.values.pack(f"effects/{short(operation_id)}", to_json(outcome))
        async for _ in attempts(f"the effect {name!r}"):
            earlier = await self._find_effect(operation_id, name)
            if earlier is not None and earlier["outcome"] is not None:
                await self._storage.values.forget(packed)
                check(await self._storage.head(operation_id), claim)
                return await self._state(earlier)
            document = {**(earlier or self._effect(operation_id, name, begun_by=0)), "outcome": packed}
            step = Replace(document) if earlier else Create(document)
            if (await self._storage.write(operation_id, step, claim=claim)).is_done:
                return await self._state(document)
        raise AssertionError("attempts() ends by raising")

    async def effects(self, operation_id: str) -> dict[str, EffectState]:
        """Return all effects, oldest first."""
        text = "SELECT * FROM c WHERE c.pk = @pk AND c.kind = 'effect' ORDER BY c.sequence"
        found = await self._storage.documents.query(operation_partition(operation_id), text)
        return {effect["name"]: await self._state(effect) for effect in found}

    async def _append(
        self,
        operation_id: str,
        kind: str,
        fields: Callable[[int], Awaitable[Document]],
        claim: Claim | None,
        changes: dict[str, Any],
    ) -> Document:
        partition, token = operation_partition(operation_id), uuid.uuid4().hex
        async for _ in attempts(f"the {kind} of operation {operation_id!r}"):
            first = await self._end(partition, kind) + 1
            document: Document = {
                "id": f"{kind}-{first:012d}",
                "pk": partition,
                "kind": kind,
                "sequence": first,
                "token": token,
                "ttl": self._storage.operation_ttl,
                **await fields(first),
            }
            outcome = await self._storage.write(operation_id, Create(document), claim=claim, changes=changes)
            if not outcome.is_done:
                earlier = await self._storage.documents.read(partition, document["id"])
                if earlier is None or earlier["token"] != token:
                    self._ends.pop((partition, kind), None)
                    if kind == "events":
                        await self._storage.values.forget(document)
                    continue
                document = earlier  # from a try whose answer was lost
            self._remember(partition, kind, document["last"])
            return document
        raise AssertionError("attempts() ends by raising")

    async def _end(self, partition: str, kind: str) -> int:
        known = self._ends.get((partition, kind))
        if known is not None:
            return known
        text = f"SELECT TOP 1 * FROM c WHERE c.pk = @pk AND c.kind = '{kind}' ORDER BY c.sequence DESC"
        found = await self._storage.documents.query(partition, text)
        return int(found[0]["last"]) if found else 0

    def _remember(self, partition: str, kind: str, last: int) -> None:
        self._ends[partition, kind] = last
        self._ends.move_to_end((partition, kind))
        while len(self._ends) > ENDS_KEPT:
            self._ends.popitem(last=False)

    def _effect(self, operation_id: str, name: str, *, begun_by: int) -> Document:
        return {
            "id": f"effect-{short(name)}",
            "pk": operation_partition(operation_id),
            "kind": "effect",
            "name": name,
            "begun_by": begun_by,
            "outcome": None,
            "sequence": time.time_ns() // 1000,
            "token": uuid.uuid4().hex,
            "ttl": self._storage.operation_ttl,
        }

    async def _find_effect(self, operation_id: str, name: str) -> Document | None:
        return await self._storage.documents.read(operation_partition(operation_id), f"effect-{short(name)}")

    async def _state(self, effect: Document) -> EffectState:
        if effect["outcome"] is None:
            return EffectState(state="begun", begun_by=effect["begun_by"])
        outcome = json.loads(await self._storage.values.unpack(effect["outcome"]))
        return EffectState(state="ended", outcome=outcome, begun_by=effect["begun_by"])


def _events(packed: bytes) -> list[StoredEvent]:
    return [StoredEvent(event["seq"], event) for event in json.loads(packed)["events"]]
