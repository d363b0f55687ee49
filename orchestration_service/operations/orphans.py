"""Operations whose process died: each gets an end a person can read, so that no portal polls for ever."""

from __future__ import annotations

from orchestration_service.operations.model import Operation, OperationStore
from workflow_schemas.platform import failed_response

INTERRUPTED = (
    "The service was restarted while it worked on this message, so the work was interrupted. "
    "Files saved by earlier messages are still there. Please send the message again."
)
"""What the user reads."""


async def settle_orphans(operations: OperationStore, instance_id: str) -> list[Operation]:
    """End every operation left in progress and return the ended ones.

    Call it at start, before the first request is accepted, and only where one process owns the store: to a second
    process the first one's running operations look the same.
    """
    settled = []
    for orphan in await operations.unfinished(instance_id):
        result = failed_response(
            orphan.operation_id,
            INTERRUPTED,
            agent_name=orphan.agent_name,
            errors=[f"the process ended after step {orphan.last_step or 'accept'!r}"],
        )
        settled.append(await operations.finish(orphan.operation_id, "Failed", result, status_message=INTERRUPTED))
    return settled
