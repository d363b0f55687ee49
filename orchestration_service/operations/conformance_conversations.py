"""What an operation store promises about conversations and retention. `CHECKS` of `conformance.py` has them all."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from orchestration_service.errors import ConversationChanged, OperationUnknown
from orchestration_service.operations.conformance_samples import ANN, INSTANCE, accepted, answer, expected, new_operation, taken
from orchestration_service.operations.conversation import Conversation, ForkOffer, Origin, SandboxMark, TurnRecord
from orchestration_service.operations.model import OperationStore


def a_turn(number: int, parent: int = 0) -> TurnRecord:
    """Return a sealed turn with something in every field."""
    return TurnRecord(
        turn_number=number,
        parent_turn=parent,
        operation_id=f"operation-{number}",
        end_reason="done",
        agent_session_id="session ä",
        result_tree="0" * 64,
        archives=("turn-1.workspace.tar", f"turn-{number}.workspace.tar"),
        file_ids={"turn-1.workspace.tar": "file-1", f"turn-{number}.workspace.tar": "file-2"},
        inputs=("repo ä.tar",),
        created_at=datetime.now(UTC),
    )


def a_conversation(conversation_id: str | None = None, *turns: int) -> Conversation:
    """Return a conversation nobody has saved yet, with the turns given and the last one as its head."""
    return Conversation(
        instance_id=INSTANCE,
        upn=ANN,
        conversation_id=conversation_id or uuid.uuid4().hex,
        profile="default",
        head_turn=turns[-1] if turns else 0,
        turns=tuple(a_turn(number) for number in turns),
        sandbox=SandboxMark(session_id="s-1", generation="g-1"),
        forks=(ForkOffer(code_sha256="0" * 64, turn_number=1, expires_at=datetime.now(UTC), taken_by="another"),),
        origin=Origin(conversation_id="the one before", turn_number=1),
    )


async def a_saved_conversation_is_found_again(store: OperationStore) -> None:
    """What was saved comes back field by field, to its user in any case, and to nobody else."""
    saved = await store.save_conversation(a_conversation(None, 1, 2))
    assert saved.version == 1
    assert await store.conversation(INSTANCE, ANN, saved.conversation_id) == saved
    assert await store.conversation(INSTANCE, ANN.upper(), saved.conversation_id) == saved
    assert await store.conversation(INSTANCE, "bob@contoso.com", saved.conversation_id) is None
    assert await store.conversation(str(uuid.uuid4()), ANN, saved.conversation_id) is None
    assert await store.conversation(INSTANCE, ANN, uuid.uuid4().hex) is None


async def a_conversation_changes_only_for_its_last_reader(store: OperationStore) -> None:
    """Each save needs the version it replaces; another one is refused and changes nothing."""
    first = await store.save_conversation(a_conversation(None, 1))
    second = await store.save_conversation(first.model_copy(update={"sandbox": None}))
    assert second.version == 2
    for stale in (first, first.model_copy(update={"version": 0}), first.model_copy(update={"version": 7})):
        with expected(ConversationChanged):
            await store.save_conversation(stale)
    assert await store.conversation(INSTANCE, ANN, first.conversation_id) == second


async def a_conversation_begins_with_version_one(store: OperationStore) -> None:
    """A conversation that was never saved cannot be replaced."""
    unsaved = a_conversation(None, 1).model_copy(update={"version": 1})
    with expected(ConversationChanged):
        await store.save_conversation(unsaved)
    assert await store.conversation(INSTANCE, ANN, unsaved.conversation_id) is None


async def rewinding_frees_no_turn_number(store: OperationStore) -> None:
    """After going back to turn 1, and even after forgetting the turns behind it, the next turn has a new number."""
    conversation = uuid.uuid4().hex
    for _ in range(3):
        operation_id = await accepted(store, conversation=conversation)
        await store.finish(operation_id, "Completed", answer(operation_id))
    saved = await store.save_conversation(a_conversation(conversation, 1, 2, 3))
    rewound = await store.save_conversation(saved.model_copy(update={"head_turn": 1}))
    assert (await store.create(new_operation(conversation=conversation))).operation.turn_number == 4
    await store.save_conversation(rewound.model_copy(update={"turns": rewound.turns[:1]}))
    assert (await store.create(new_operation(conversation=conversation))).operation.turn_number == 5


async def a_fork_counts_on_from_the_turns_it_took_over(store: OperationStore) -> None:
    """A conversation that begins with turns of another one never gives their numbers to its own, however it is saved later."""
    fork = await store.save_conversation(a_conversation(None, 1, 2))
    await store.save_conversation(fork.model_copy(update={"turns": (), "head_turn": 0}))
    assert (await store.create(new_operation(conversation=fork.conversation_id, upn=ANN.upper()))).operation.turn_number == 3
    other = await store.create(new_operation(conversation=fork.conversation_id, upn="bob@contoso.com"))
    assert other.operation.turn_number == 1


async def pruning_drops_what_an_ended_operation_left(store: OperationStore) -> None:
    """Request, events, messages, steps and effects go; the operation, its result and its turn number stay."""
    instance, run = str(uuid.uuid4()), uuid.uuid4().hex
    operation_id = await accepted(store, instance=instance, conversation="c")
    claim = await taken(store, operation_id)
    await store.append_events(operation_id, [{"type": "text"}], claim)
    await store.record_messages(run, "out", [(1, "event", b"x")], claim)
    await store.record_step(operation_id, "open", {}, claim)
    await store.begin_effect(operation_id, "call", claim)
    await store.finish(operation_id, "Completed", answer(operation_id), claim=claim)
    ended = await store.get(instance, operation_id)
    assert await store.prune(instance, datetime.now(UTC) + timedelta(hours=1)) == 1
    with expected(OperationUnknown):
        await store.request(operation_id)
    left = (await store.events(operation_id), await store.messages(run, "out"), await store.steps(operation_id))
    assert left == ([], [], [])
    assert await store.effects(operation_id) == {}
    assert await store.get(instance, operation_id) == ended
    repeated = await store.create(new_operation(operation_id, instance=instance, conversation="c"))
    assert not repeated.is_new, "a repeated request would run again"
    assert (await store.create(new_operation(instance=instance, conversation="c"))).operation.turn_number == 2
    assert await store.prune(instance, datetime.now(UTC) + timedelta(hours=1)) == 0


async def pruning_spares_what_is_needed(store: OperationStore) -> None:
    """Running operations, recently ended ones and those of other instances keep everything, and so do conversations."""
    instance, elsewhere = str(uuid.uuid4()), str(uuid.uuid4())
    running, recent = await accepted(store, instance=instance), await accepted(store, instance=instance)
    other = await accepted(store, instance=elsewhere)
    conversation = await store.save_conversation(a_conversation(None, 1).model_copy(update={"instance_id": instance}))
    for operation_id in (recent, other):
        await store.finish(operation_id, "Completed", answer(operation_id))
    assert await store.prune(instance, datetime.now(UTC) - timedelta(hours=1)) == 0
    assert (await store.request(recent)).body
    assert await store.prune(instance, datetime.now(UTC) + timedelta(hours=1)) == 1
    for operation_id in (running, other):
        assert (await store.request(operation_id)).body
    assert await store.conversation(instance, ANN, conversation.conversation_id) == conversation


CONVERSATION_CHECKS: tuple[Callable[[OperationStore], Awaitable[None]], ...] = (
    a_saved_conversation_is_found_again,
    a_conversation_changes_only_for_its_last_reader,
    a_conversation_begins_with_version_one,
    rewinding_frees_no_turn_number,
    a_fork_counts_on_from_the_turns_it_took_over,
    pruning_drops_what_an_ended_operation_left,
    pruning_spares_what_is_needed,
)
"""The checks of this file, to be run one by one."""
