"""What an operation store promises to replicas that share it. Each check takes two stores opened on the same data."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import anyio

from orchestration_service.errors import ConversationChanged, LeaseLost
from orchestration_service.operations.conformance_conversations import a_conversation
from orchestration_service.operations.conformance_samples import INSTANCE, LONG_SECONDS, accepted, answer, expected, new_operation, taken
from orchestration_service.operations.lease import Claim, EffectState
from orchestration_service.operations.model import OperationStore


async def claims_at_once_give_one(one: OperationStore, two: OperationStore) -> None:
    """Of many simultaneous claims from both stores, one succeeds; after a lapse again one, with the next generation."""
    operation_id = await accepted(one)
    for generation, seconds in ((1, 0.3), (2, LONG_SECONDS)):
        claims: list[Claim] = []

        async def ask(store: OperationStore, owner: str, seconds: float = seconds, claims: list[Claim] = claims) -> None:
            claim = await store.claim(operation_id, owner, seconds)
            if claim is not None:
                claims.append(claim)

        async with anyio.create_task_group() as tasks:
            for n in range(6):
                tasks.start_soon(ask, (one, two)[n % 2], f"owner-{n}")
        assert [claim.generation for claim in claims] == [generation]
        await anyio.sleep(0.4 if generation == 1 else 0)


async def a_take_over_sees_everything_and_fences(one: OperationStore, two: OperationStore) -> None:
    """The new owner finds journal, events, messages, request and effects; the old one can write nothing any more."""
    operation_id = await accepted(one)
    old = await taken(one, operation_id, seconds=0)
    await one.record_step(operation_id, "open", {"session": "s"}, old)
    await one.append_events(operation_id, [{"type": "text"}], old)
    await one.record_messages(operation_id, "out", [(1, "model", b"x")], old)
    await one.begin_effect(operation_id, "call", old)
    assert operation_id in [found.operation_id for found in await two.claimable(INSTANCE, 10_000)]
    new = await taken(two, operation_id, "two")
    assert [step.data for step in await two.steps(operation_id)] == [{"session": "s"}]
    assert len(await two.events(operation_id)) == len(await two.messages(operation_id, "out")) == 1
    assert (await two.request(operation_id)).body
    assert (await two.begin_effect(operation_id, "call", new)).state == "begun"
    with expected(LeaseLost):
        await one.append_events(operation_id, [{"type": "text"}], old)
    finished = await two.finish(operation_id, "Completed", answer(operation_id), claim=new)
    assert await one.get(INSTANCE, operation_id) == finished


async def an_effect_begins_once(one: OperationStore, two: OperationStore) -> None:
    """Of simultaneous beginnings, one is told that nobody was there before; of simultaneous ends, one outcome stays."""
    operation_id = await accepted(one)
    begun: list[EffectState] = []
    ended: list[EffectState] = []

    async def work(store: OperationStore, n: int) -> None:
        begun.append(await store.begin_effect(operation_id, "call"))
        ended.append(await store.end_effect(operation_id, "call", {"n": n}))

    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(work, (one, two)[n % 2], n)
    assert [state.state for state in begun].count("absent") == 1
    assert all(state == ended[0] for state in ended)


async def turns_of_a_conversation_never_overlap(one: OperationStore, two: OperationStore) -> None:
    """Two stores that claim whatever they can get still work a conversation's turns off one by one, in order."""
    conversation = uuid.uuid4().hex
    waiting = [await accepted((one, two)[n % 2], conversation=conversation) for n in range(4)]
    running: set[str] = set()
    done: list[str] = []

    async def work(store: OperationStore, owner: str) -> None:
        while len(done) < len(waiting):
            for operation_id in waiting:
                if claim := await store.claim(operation_id, owner, LONG_SECONDS):
                    assert not running, "two turns of a conversation run at once"
                    running.add(operation_id)
                    await anyio.sleep(0.01)
                    running.remove(operation_id)
                    done.append(operation_id)
                    await store.finish(operation_id, "Completed", answer(operation_id), claim=claim)
            await anyio.sleep(0.005)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, one, "one")
            tasks.start_soon(work, two, "two")
    assert done == waiting


async def turns_are_counted_once_for_all(one: OperationStore, two: OperationStore) -> None:
    """Operations accepted through both stores at once have different turn numbers, without gaps."""
    conversation = uuid.uuid4().hex
    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon((one, two)[n % 2].create, new_operation(conversation=conversation))
    turns = [found.turn_number for found in await one.unfinished(INSTANCE) if found.conversation_id == conversation]
    assert sorted(turns) == [1, 2, 3, 4, 5, 6]


async def events_of_two_writers_are_numbered_without_gaps(one: OperationStore, two: OperationStore) -> None:
    """Also a fence that fails to keep a second writer out never leads to two events under one number."""
    operation_id = await accepted(one)
    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon((one, two)[n % 2].append_events, operation_id, [{"type": "text"}] * 2)
    assert [event.sequence for event in await two.events(operation_id)] == list(range(1, 13))


async def a_conversation_saved_at_once_is_saved_by_one(one: OperationStore, two: OperationStore) -> None:
    """Of simultaneous saves of the same version, the first one included, one succeeds."""
    conversation = a_conversation(None, 1)
    saved: list[int] = []

    async def save(store: OperationStore, version: int) -> None:
        try:
            saved.append((await store.save_conversation(conversation.model_copy(update={"version": version}))).version)
        except ConversationChanged:
            return

    for version in (0, 1):
        async with anyio.create_task_group() as tasks:
            for n in range(6):
                tasks.start_soon(save, (one, two)[n % 2], version)
    assert saved == [1, 2]


REPLICA_CHECKS: tuple[Callable[[OperationStore, OperationStore], Awaitable[None]], ...] = (
    claims_at_once_give_one,
    a_take_over_sees_everything_and_fences,
    an_effect_begins_once,
    turns_of_a_conversation_never_overlap,
    turns_are_counted_once_for_all,
    events_of_two_writers_are_numbered_without_gaps,
    a_conversation_saved_at_once_is_saved_by_one,
)
"""The checks of this file, to be run one by one."""
