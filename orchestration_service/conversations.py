"""What a turn needs of the turns before it, and what it leaves for the turns after it.

The conversation's record lives in the operation store. It pins the sandbox profile of the first turn, knows the sealed turns, and which
sandbox the last one has left. The turn a new one goes on from is the head; rewinding moves the head.
"""

from datetime import UTC, datetime

from orchestration_service.errors import PlanRefused, TurnUnknown
from orchestration_service.operations import Operation
from orchestration_service.operations.conversation import Conversation, Conversations, SandboxMark, TurnRecord
from orchestration_service.planning import Continuing, Planned
from workflow_schemas.manifest import RunManifest, SealFacts
from workflow_schemas.plan import Restore
from workflow_schemas.receipt import StoredFile


async def find_conversation(store: Conversations, operation: Operation) -> Conversation | None:
    """Return the conversation of an operation, None outside of one.

    Raises:
        StoreError: The store cannot say. Nothing is assumed then: a lookup that fails must not weaken what was pinned.
    """
    if not operation.conversation_id:
        return None
    return await store.conversation(operation.instance_id, operation.upn, operation.conversation_id)


def check_profile(conversation: Conversation | None, planned: Planned) -> None:
    """Hold the sandbox profile against the one pinned at the first turn.

    Raises:
        PlanRefused: The agent asks for another profile now; nothing is executed.
    """
    wanted = planned.properties.sandbox_profile
    if conversation is not None and conversation.profile != wanted:
        raise PlanRefused(
            f"This conversation began with the sandbox profile {conversation.profile!r}, and the agent now asks for {wanted!r}. "
            "The profile of a conversation never changes. Start a new conversation for the other profile."
        )


def go_on_from(conversation: Conversation | None, *, live: bool) -> Continuing | None:
    """Return what the next turn goes on from.

    Args:
        conversation: The conversation, if there is one.
        live: Whether the sandbox is still the one the head turn has left.
    """
    head = conversation.head if conversation else None
    if head is None:
        return None
    if live:
        return Continuing(agent_session_id=head.agent_session_id or "")
    assert conversation is not None
    sealed = _nearest_sealed(conversation, head)
    if sealed is None or sealed.seal_sha256 is None:
        return None
    restore = Restore(
        turn_number=sealed.turn_number,
        archives=sealed.archives,
        index_sha256=sealed.seal_sha256,
        inputs={name: name for name in sealed.inputs},
    )
    return Continuing(agent_session_id=sealed.agent_session_id or "", restore=restore)


def _nearest_sealed(conversation: Conversation, head: TurnRecord) -> TurnRecord | None:
    """Return the last turn up to the head that was sealed: a turn that was lost must not take the earlier ones with it."""
    record: TurnRecord | None = head
    while record is not None and record.seal_sha256 is None:
        record = conversation.turn(record.parent_turn)
    return record


def sealed_turn(conversation: Conversation | None, turn_number: int) -> TurnRecord:
    """Return a turn that can be gone on from.

    Raises:
        TurnUnknown: There is no such turn, or it was not sealed; the text names the turns there are.
    """
    record = conversation.turn(turn_number) if conversation else None
    if record is None or record.seal_sha256 is None:
        sealed = [str(turn.turn_number) for turn in (conversation.turns if conversation else ()) if turn.seal_sha256]
        if not sealed:
            raise TurnUnknown("No turn of this conversation has been sealed yet, so there is nothing to go on from.")
        said = f"There is no sealed turn {turn_number} here." if turn_number else "No turn is named."
        raise TurnUnknown(f"{said} Name one of: {', '.join(sealed)}.")
    return record


def rewound(conversation: Conversation | None, turn_number: int) -> Conversation:
    """Return the conversation with an earlier turn as its head; the turns after it stay where they are.

    Raises:
        TurnUnknown: There is no such turn, or it was not sealed; the text names the turns there are.
    """
    record = sealed_turn(conversation, turn_number)
    assert conversation is not None
    return conversation.model_copy(update={"head_turn": record.turn_number, "sandbox": None})


def with_turn(
    conversation: Conversation | None,
    operation: Operation,
    planned: Planned,
    manifest: RunManifest,
    files: tuple[StoredFile, ...],
    session_id: str,
) -> Conversation:
    """Return the conversation with this turn as its head."""
    number = operation.turn_number
    known = conversation or Conversation(
        instance_id=operation.instance_id,
        upn=operation.upn,
        conversation_id=operation.conversation_id or operation.operation_id,
        profile=planned.properties.sandbox_profile,
    )
    stored = {file.name for file in files if file.integrity == "exact"}
    seal = manifest.seal if manifest.seal is not None and stored.issuperset(manifest.seal.parts) else None
    record = TurnRecord(
        turn_number=number,
        parent_turn=known.head_turn,
        operation_id=operation.operation_id,
        end_reason=manifest.end_reason,
        agent_session_id=manifest.session_id or None,
        result_tree=seal.tree_sha256 if seal else None,
        seal_sha256=seal.index_sha256 if seal else None,
        archives=(*_earlier_parts(known, seal.builds_on), *seal.parts) if seal else (),
        file_ids=_inputs(known, planned, seal) | {file.name: file.file_id for file in files},
        inputs=seal.inputs if seal else (),
        created_at=datetime.now(UTC),
    )
    # else the workspace is empty, or only half of what it should be
    usable = manifest.generation and manifest.end_reason not in ("input_error", "refused")
    mark = SandboxMark(session_id=session_id, generation=manifest.generation) if usable else None
    return known.model_copy(update={"head_turn": number, "turns": (*known.turns, record), "sandbox": mark})


def _inputs(conversation: Conversation, planned: Planned, seal: SealFacts | None) -> dict[str, str]:
    """Return the records of the user's files that a seal of the difference builds on."""
    known = {name: file_id for turn in conversation.turns for name, file_id in turn.file_ids.items()}
    known |= {item.original_file_name: item.file_id for item in sorted(planned.sources, key=lambda item: item.order) if item.file_id}
    return {name: known[name] for name in (seal.inputs if seal else ()) if name in known}


def _earlier_parts(conversation: Conversation, turns: tuple[int, ...]) -> tuple[str, ...]:
    parts: list[str] = []
    for number in turns:
        record = conversation.turn(number)
        parts += [name for name in (record.archives if record else ()) if name.startswith(f"turn-{number:03d}-seal")]
    return tuple(parts)
