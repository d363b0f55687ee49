"""What every part of the Cosmos DB store stands on: where things lie, and how a write is fenced.

One container, partitioned by `/pk`, so that no partition grows or heats up with the whole service:

===================  =======================================  ====================================================
partition            documents                                written
===================  =======================================  ====================================================
``op:…``             the operation, its request, steps,       on each change of that operation
                     events in chunks, effects
``run:…``            mailbox messages, a fence                on each exchange of that run
``conversation:…``   turn counter, one fence per turn,        once or twice a turn
                     the conversation
``index:…:NN``       one line per operation, in 16 shards     at an operation's start and end
===================  =======================================  ====================================================

A write that carries a claim is a batch whose first step demands the claim's generation of a **fence** in the same partition.
The fence of an operation's partition is the operation itself. A claim that takes an operation over raises the generation
there first and then in the fences of its runs and its turn, before it is handed out: from then on no earlier owner can write
anywhere.
"""

from __future__ import annotations

import hashlib
import json
import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import anyio

from orchestration_service.errors import LeaseLost, OperationUnknown, StoreBusy
from orchestration_service.operations.blob import LargeValues
from orchestration_service.operations.cosmos_documents import Document, Documents, Outcome, Patch, Step
from orchestration_service.operations.cosmos_settings import CosmosSettings
from orchestration_service.operations.lease import Claim, Lease
from orchestration_service.operations.model import Operation
from workflow_schemas.platform import CompletionResponse

SHARDS = 16
ATTEMPTS = 40
"""How often a write is repeated that others get ahead of; each time one of them has succeeded."""
DAY_SECONDS = 86_400


def short(*parts: str) -> str:
    """Return a name for foreign ids: Cosmos DB allows neither slashes nor much length in its own."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


def operation_partition(operation_id: str) -> str:
    """Where an operation lies."""
    return f"op:{short(operation_id)}"


def head_id(operation_id: str) -> str:
    """The document that is the operation itself."""
    return f"operation-{short(operation_id)}"


def index_shards(instance_id: str) -> list[str]:
    """The partitions that list an instance's operations."""
    return [f"index:{short(instance_id)}:{shard:02d}" for shard in range(SHARDS)]


def index_partition(instance_id: str, operation_id: str) -> str:
    """The one of them that lists this operation."""
    return index_shards(instance_id)[int(short(operation_id)[:8], 16) % SHARDS]


def fenced(claim: Claim | None, *conditions: str) -> str | None:
    """Return the condition under which a claim may write."""
    every = [*conditions, *([f"c.generation = {claim.generation}"] if claim else [])]
    return " AND ".join(every) or None


def as_text(moment: datetime) -> str:
    """Write a time so that times sort as texts do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def to_json(value: Mapping[str, Any]) -> bytes:
    """Write JSON that any reader takes: NaN and infinities reach us from sandboxes and become null."""
    try:
        return json.dumps(value, allow_nan=False).encode("ascii")
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None)).encode("ascii")


async def attempts(what: str) -> AsyncIterator[int]:
    """Count the tries of a write that others may get ahead of, pausing between them.

    Raises:
        StoreBusy: None of them succeeded.
    """
    for number in range(ATTEMPTS):
        yield number
        await anyio.sleep(min(0.002 * 2**number, 0.2) * random.uniform(0.5, 1.5))
    raise StoreBusy(f"Others kept changing {what} while it was to be written, {ATTEMPTS} times. Try again in a moment.")


class CosmosStorage:
    """The container, the blobs and the clock; the parts of the store are built on it.

    Args:
        documents: The container's documents.
        values: Where large values go.
        settings: How long things are kept.
        clock: Tells the time in UTC; leases are written and compared by it, so replicas need synchronised clocks.
    """

    def __init__(self, documents: Documents, values: LargeValues, settings: CosmosSettings, clock: Callable[[], datetime]) -> None:
        self.documents = documents
        self.values = values
        self.clock = clock
        self.operation_ttl = settings.operation_days * DAY_SECONDS
        self.conversation_ttl = settings.conversation_days * DAY_SECONDS

    def now(self) -> str:
        """The time, as documents say it."""
        return as_text(self.clock())

    async def head(self, operation_id: str) -> Document:
        """Return the operation's own document.

        Raises:
            OperationUnknown: There is none.
        """
        found = await self.documents.read(operation_partition(operation_id), head_id(operation_id))
        if found is None:
            raise OperationUnknown(operation_id)
        return found

    async def write(
        self,
        operation_id: str,
        *steps: Step,
        claim: Claim | None = None,
        changes: Mapping[str, Any] | None = None,
        where: str | None = None,
    ) -> Outcome:
        """Write in an operation's partition, if the claim is still good.

        Args:
            operation_id: The operation.
            steps: What is to be written beside it.
            claim: Proof that nobody newer owns the operation.
            changes: Fields of the operation itself.
            where: What must hold of the operation besides; when it does not, the outcome is `changed` at step 0.

        Raises:
            OperationUnknown: There is no such operation.
            LeaseLost: The claim is outdated.
        """
        condition = fenced(claim, *([where] if where else []))
        guard = Patch(head_id(operation_id), {"touched": uuid.uuid4().hex, **(changes or {})}, condition)
        outcome = await self.documents.write(operation_partition(operation_id), guard, *steps)
        if outcome.step == 0 and outcome.kind == "absent":
            raise OperationUnknown(operation_id)
        if outcome.step == 0 and outcome.kind == "changed":
            check(await self.head(operation_id), claim)
        return outcome

    async def operation(self, head: Document) -> Operation:
        """Read an operation from its document."""
        packed = head.get("result")
        result = CompletionResponse.model_validate_json(await self.values.unpack(packed)) if packed else None
        lease = head.get("lease")
        return Operation(
            operation_id=head["operation_id"],
            instance_id=head["instance_id"],
            upn=head["upn"],
            conversation_id=head["conversation_id"],
            agent_name=head["agent_name"],
            turn_number=head["turn_number"],
            status=head["status"],
            status_message=head["status_message"],
            prompt_tokens=head["prompt_tokens"],
            completion_tokens=head["completion_tokens"],
            result=result,
            fingerprint=head["fingerprint"],
            created_at=head["created_at"],
            updated_at=head["updated_at"],
            last_step=head["last_step"],
            lease=Lease(owner=lease["owner"], generation=head["generation"], until=lease["until"]) if lease else None,
        )


def check(head: Document, claim: Claim | None) -> None:
    """Refuse an outdated claim.

    Raises:
        LeaseLost: A newer one was given.
    """
    if claim is not None and head["generation"] != claim.generation:
        raise LeaseLost(claim.operation_id, claim.generation)
