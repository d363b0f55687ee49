"""An operation whose process died and that nobody can go on with: it gets an end a person can read, so that no portal polls for ever."""

from __future__ import annotations

from orchestration_service.errors import LeaseLost
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.model import Operation, OperationStore
from workflow_schemas.platform import failed_response

INTERRUPTED = (
    "The service was restarted while it worked on this message, so the work was interrupted. "
    "Files saved by earlier messages are still there. Please send the message again."
)
"""What the user reads."""


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
