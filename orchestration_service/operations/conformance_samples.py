"""What the checks of an operation store are made of."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from orchestration_service.errors import ServiceError
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.model import NewOperation, OperationStore
from workflow_schemas.platform import CompletionResponse, TextItem

INSTANCE = "11111111-1111-4111-8111-111111111111"
ANN = "ann@contoso.com"
LONG_SECONDS = 600.0
"""A lease no check outlives."""


def new_operation(
    operation_id: str | None = None, *, upn: str = ANN, conversation: str | None = None, instance: str = INSTANCE
) -> NewOperation:
    """Return an operation to be accepted, under an id of its own unless one is given."""
    return NewOperation(
        operation_id=operation_id or str(uuid.uuid4()),
        instance_id=instance,
        upn=upn,
        conversation_id=conversation,
        agent_name="coder",
        fingerprint="0" * 64,
        request=b'{"user_prompt":"hi"}',
        identity_header='{"upn":"ann@contoso.com"}',
    )


async def accepted(store: OperationStore, *, upn: str = ANN, conversation: str | None = None, instance: str = INSTANCE) -> str:
    """Accept an operation and return its id."""
    created = await store.create(new_operation(upn=upn, conversation=conversation, instance=instance))
    return created.operation.operation_id


async def taken(store: OperationStore, operation_id: str, owner: str = "one", seconds: float = LONG_SECONDS) -> Claim:
    """Claim an operation that must be free."""
    claim = await store.claim(operation_id, owner, seconds)
    assert claim is not None, "a free operation was not given"
    return claim


def answer(operation_id: str, text: str = "done") -> CompletionResponse:
    """Return the answer of a turn."""
    return CompletionResponse(
        operation_id=operation_id, completion=text, content=[TextItem(value=text)], prompt_tokens=7, completion_tokens=3
    )


@contextmanager
def expected(kind: type[ServiceError]) -> Iterator[None]:
    """Fail unless ``kind`` is raised within."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"accepted, where {kind.__name__} was due")
