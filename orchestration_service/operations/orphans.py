"""Operations whose process died: each gets an end a person can read, so that no portal polls for ever."""

from __future__ import annotations

import uuid

from orchestration_service.errors import LeaseLost
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.model import Operation, OperationStore
from workflow_schemas.platform import failed_response

INTERRUPTED = (
    "The service was restarted while it worked on this message, so the work was interrupted. "
    "Files saved by earlier messages are still there. Please send the message again."
)
"""What the user reads."""
SETTLING_SECONDS = 30.0
"""Lease of an operation that is being ended; only one write happens under it."""


async def settle_orphans(operations: OperationStore, instance_id: str) -> list[Operation]:
    """End every operation in progress that nobody holds a lease on, and return the ended ones.

    For a service that does not take turns over. Operations a live process has claimed are left to it; those of a dead one
    are settled by a call after their lease has lapsed. Work done without a claim is not protected: where it is done, call
    this at start, before the first request is accepted.
    """
    settled: list[Operation] = []
    owner = f"settling-{uuid.uuid4().hex}"
    while found := [await _settle(operations, orphan, owner) for orphan in await operations.claimable(instance_id)]:
        ended = [operation for operation in found if operation is not None]
        settled += ended
        if not ended:  # somebody else is at it, or their leases have just been started anew
            break
    return settled


async def _settle(operations: OperationStore, orphan: Operation, owner: str) -> Operation | None:
    claim = await operations.claim(orphan.operation_id, owner, SETTLING_SECONDS)
    return None if claim is None else await end_interrupted(operations, orphan, claim)


async def end_interrupted(operations: OperationStore, orphan: Operation, claim: Claim) -> Operation | None:
    """End an operation that nobody can go on with, under our claim; None when somebody newer has it."""
    result = failed_response(
        orphan.operation_id,
        INTERRUPTED,
        agent_name=orphan.agent_name,
        errors=[f"the process ended after step {orphan.last_step or 'accept'!r}"],
    )
    try:
        ended = await operations.finish(orphan.operation_id, "Failed", result, status_message=INTERRUPTED, claim=claim)
    except LeaseLost:  # we were slow; the newer owner ends it
        return None
    await operations.release(claim)
    return ended
