"""Entering a turn into its conversation, once, whoever else writes to the conversation meanwhile."""

from collections.abc import Sequence

from orchestration_service.conversations import find_conversation, with_turn
from orchestration_service.course import Course
from orchestration_service.errors import ConversationChanged
from orchestration_service.operations import Conversation
from orchestration_service.operations.conversation import Conversations
from workflow_schemas.manifest import RunManifest
from workflow_schemas.receipt import StoredFile

_ATTEMPTS = 5


async def keep_turn(course: Course, store: Conversations, manifest: RunManifest, files: Sequence[StoredFile]) -> Conversation:
    """Save the conversation with this turn in it and return it; a turn that is in it already is not entered again.

    A turn whose result came after it was given up takes the place of the record of that.

    Raises:
        ConversationChanged: Others changed the conversation again and again.
    """
    for attempt in range(_ATTEMPTS):
        known = course.conversation
        there = known.turn(course.turn.operation.turn_number) if known else None
        if known is not None and there is not None and there.end_reason == manifest.end_reason:
            return known
        try:
            return await course.ledger.save_conversation(_with(known, course, manifest, tuple(files)))
        except ConversationChanged:
            if attempt == _ATTEMPTS - 1:
                raise
            course.conversation = await find_conversation(store, course.turn.operation)
    raise AssertionError("unreachable")


def _with(known: Conversation | None, course: Course, manifest: RunManifest, files: tuple[StoredFile, ...]) -> Conversation:
    operation = course.turn.operation
    number = operation.turn_number
    failed = known.turn(number) if known else None
    before = known
    if known is not None and failed is not None:
        others = tuple(turn for turn in known.turns if turn.turn_number != number)
        before = known.model_copy(update={"turns": others, "head_turn": failed.parent_turn})
    kept = with_turn(before, operation, course.planned, manifest, files, course.session.session_id)
    if known is None:
        return kept
    if failed is not None and not _is_newest(known, number, failed.parent_turn):
        return kept.model_copy(update={"head_turn": known.head_turn, "sandbox": known.sandbox})
    if manifest.end_reason == "refused":  # nothing has happened, in the sandbox neither
        return kept.model_copy(update={"head_turn": known.head_turn, "sandbox": known.sandbox})
    if manifest.end_reason == "sandbox_lost" and known.head_turn:  # nothing was sealed: the next turn goes on from the one before
        return kept.model_copy(update={"head_turn": known.head_turn})
    return kept


def _is_newest(known: Conversation, number: int, parent: int) -> bool:
    """Whether nothing has happened in a conversation since this turn failed."""
    return known.head_turn in (number, parent) and max(turn.turn_number for turn in known.turns) == number
