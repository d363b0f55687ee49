"""What an operation store promises, as checks any implementation can be held to.

Each check takes an empty or used store (it works under ids of its own) and raises `AssertionError` with a reason.
Run all of `CHECKS`, and all of `REPLICA_CHECKS` on two stores opened on the same data; a store that cannot keep one
lists it with the reason why.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import anyio

from orchestration_service.errors import OperationConflict, OperationUnknown
from orchestration_service.operations.conformance_conversations import CONVERSATION_CHECKS
from orchestration_service.operations.conformance_leases import LEASE_CHECKS
from orchestration_service.operations.conformance_replicas import REPLICA_CHECKS
from orchestration_service.operations.conformance_samples import INSTANCE, answer, expected, new_operation
from orchestration_service.operations.model import Created, OperationStore
from workflow_schemas.platform import failed_response

__all__ = ["CHECKS", "REPLICA_CHECKS"]


async def a_created_operation_is_found_again(store: OperationStore) -> None:
    """What `create` returns is what `get` finds, in progress, with the request kept."""
    created = await store.create(new_operation())
    found = await store.get(INSTANCE, created.operation.operation_id)
    assert created.is_new
    assert found == created.operation, "get differs from what create returned"
    assert found is not None
    assert found.status == "InProgress"
    assert found.result is None
    assert (await store.request(found.operation_id)).body == b'{"user_prompt":"hi"}'


async def creating_twice_is_harmless(store: OperationStore) -> None:
    """The second `create` returns the first operation and says that it is not new; the user's case does not matter."""
    first = await store.create(new_operation())
    second = await store.create(new_operation(first.operation.operation_id, upn="ANN@contoso.com"))
    assert not second.is_new
    assert second.operation == first.operation


async def creating_at_once_makes_one(store: OperationStore) -> None:
    """Of several simultaneous creations under one id, exactly one is new."""
    operation_id = str(uuid.uuid4())
    created: list[Created] = []

    async def create() -> None:
        created.append(await store.create(new_operation(operation_id)))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(create)
    assert sum(one.is_new for one in created) == 1


async def an_id_belongs_to_its_user(store: OperationStore) -> None:
    """Another user cannot take over an id."""
    first = await store.create(new_operation())
    with expected(OperationConflict):
        await store.create(new_operation(first.operation.operation_id, upn="bob@contoso.com"))


async def an_operation_is_invisible_to_other_instances(store: OperationStore) -> None:
    """`get` under another instance finds nothing."""
    created = await store.create(new_operation())
    assert await store.get("22222222-2222-4222-8222-222222222222", created.operation.operation_id) is None


async def turns_are_counted_per_user_and_conversation(store: OperationStore) -> None:
    """Turn numbers run from 1 per user and conversation, without gaps or doubles even when created at once."""
    conversation = uuid.uuid4().hex
    turns: list[int] = []

    async def create() -> None:
        turns.append((await store.create(new_operation(conversation=conversation))).operation.turn_number)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(create)
    assert sorted(turns) == [1, 2, 3, 4, 5]
    other = await store.create(new_operation(conversation=conversation, upn="bob@contoso.com"))
    assert other.operation.turn_number == 1, "another user's turns were counted along"
    same = await store.create(new_operation(conversation=conversation, upn="Ann@Contoso.com"))
    assert same.operation.turn_number == 6, "the user's case mattered"


async def progress_is_kept_until_the_end(store: OperationStore) -> None:
    """`save_progress` shows in a running operation and changes nothing on an ended one."""
    operation_id = (await store.create(new_operation())).operation.operation_id
    await store.save_progress(operation_id, "half way", prompt_tokens=5, completion_tokens=2)
    running = await store.get(INSTANCE, operation_id)
    assert running is not None
    assert (running.status_message, running.prompt_tokens, running.completion_tokens) == ("half way", 5, 2)
    ended = await store.finish(operation_id, "Completed", answer(operation_id))
    await store.save_progress(operation_id, "too late")
    assert await store.get(INSTANCE, operation_id) == ended


async def status_and_result_come_together(store: OperationStore) -> None:
    """A reader never sees an ended operation without its result."""
    operation_id = (await store.create(new_operation())).operation.operation_id
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.finish, operation_id, "Completed", answer(operation_id))
        for _ in range(50):
            seen = await store.get(INSTANCE, operation_id)
            assert seen is not None
            assert seen.is_finished == (seen.result is not None)
    ended = await store.get(INSTANCE, operation_id)
    assert ended is not None
    assert ended.result == answer(operation_id)
    assert (ended.prompt_tokens, ended.completion_tokens) == (7, 3)


async def the_first_end_stays(store: OperationStore) -> None:
    """Ending twice is harmless and returns the first end; only ``adopt`` replaces it, and never a result by a failure."""
    operation_id = (await store.create(new_operation())).operation.operation_id
    first = await store.finish(operation_id, "Failed", failed_response(operation_id, "first"))
    assert await store.finish(operation_id, "Completed", answer(operation_id, "second")) == first
    third = await store.finish(operation_id, "Completed", answer(operation_id, "third"), adopt=True)
    assert (third.status, third.result) == ("Completed", answer(operation_id, "third"))
    assert await store.finish(operation_id, "Failed", failed_response(operation_id, "fourth"), adopt=True) == third
    fifth = await store.finish(operation_id, "Completed", answer(operation_id, "fifth"), adopt=True)
    assert fifth.result == answer(operation_id, "fifth")


async def unfinished_lists_what_is_in_progress(store: OperationStore) -> None:
    """`unfinished` returns running operations, oldest first, and no ended ones."""
    first, second, ended = [(await store.create(new_operation())).operation.operation_id for _ in range(3)]
    await store.finish(ended, "Completed", answer(ended))
    listed = [operation.operation_id for operation in await store.unfinished(INSTANCE)]
    assert ended not in listed
    assert listed.index(first) < listed.index(second)


async def the_journal_keeps_order_and_data(store: OperationStore) -> None:
    """Steps come back in order with their data, and the operation names the last one."""
    operation_id = (await store.create(new_operation())).operation.operation_id
    await store.record_step(operation_id, "open", {"session": "s-1"})
    await store.record_step(operation_id, "run", {"pid": 7, "nested": {"ä": [1, None]}})
    steps = await store.steps(operation_id)
    assert [(step.step, step.data) for step in steps] == [
        ("open", {"session": "s-1"}),
        ("run", {"pid": 7, "nested": {"ä": [1, None]}}),
    ]
    operation = await store.get(INSTANCE, operation_id)
    assert operation is not None
    assert operation.last_step == "run"


async def events_are_numbered_without_gaps(store: OperationStore) -> None:
    """Events added at once by several tasks are numbered 1, 2, 3 … and can be read from any point."""
    operation_id = (await store.create(new_operation())).operation.operation_id
    async with anyio.create_task_group() as tasks:
        for batch in range(4):
            tasks.start_soon(store.append_events, operation_id, [{"type": "text", "content": f"{batch}"}] * 3)
    events = await store.events(operation_id)
    assert [event.sequence for event in events] == list(range(1, 13))
    assert all(event.event["seq"] == event.sequence for event in events)
    assert [event.sequence for event in await store.events(operation_id, after=4, limit=3)] == [5, 6, 7]


async def odd_numbers_and_broken_text_survive_the_log(store: OperationStore) -> None:
    """NaN becomes null, and half a surrogate pair breaks neither writing nor reading: both come out of sandboxes."""
    operation_id = (await store.create(new_operation())).operation.operation_id
    await store.append_events(operation_id, [{"type": "text", "content": "\ud83d", "n": float("nan")}])
    (event,) = await store.events(operation_id)
    assert event.event["n"] is None


async def messages_are_kept_once(store: OperationStore) -> None:
    """A repeated message changes nothing; directions and runs do not mix; bytes come back as they went in."""
    run = uuid.uuid4().hex
    assert await store.record_messages(run, "out", [(1, "model", b"\x00\xff"), (2, "event", b"b")]) == 2
    assert await store.record_messages(run, "out", [(2, "event", b"changed"), (3, "event", b"c")]) == 1
    await store.record_messages(run, "in", [(1, "answer", b"x")])
    out = await store.messages(run, "out")
    assert [(m.sequence, m.kind, m.body) for m in out] == [(1, "model", b"\x00\xff"), (2, "event", b"b"), (3, "event", b"c")]
    assert [m.sequence for m in await store.messages(run, "out", after=2)] == [3]
    assert [m.body for m in await store.messages(run, "in")] == [b"x"]
    await store.forget_messages(run)
    assert await store.messages(run, "out") == []


async def an_unknown_operation_is_said_to_be_unknown(store: OperationStore) -> None:
    """Writing about an operation that does not exist raises, and leaves nothing behind."""
    nobody = str(uuid.uuid4())
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: store.save_progress(nobody, "x"),
        lambda: store.finish(nobody, "Completed", answer(nobody)),
        lambda: store.record_step(nobody, "open", {}),
        lambda: store.append_events(nobody, [{"type": "text"}]),
        lambda: store.request(nobody),
    ]
    for attempt in attempts:
        with expected(OperationUnknown):
            await attempt()
    assert await store.get(INSTANCE, nobody) is None
    assert await store.events(nobody) == []


CHECKS: tuple[Callable[[OperationStore], Awaitable[None]], ...] = (
    a_created_operation_is_found_again,
    creating_twice_is_harmless,
    creating_at_once_makes_one,
    an_id_belongs_to_its_user,
    an_operation_is_invisible_to_other_instances,
    turns_are_counted_per_user_and_conversation,
    progress_is_kept_until_the_end,
    status_and_result_come_together,
    the_first_end_stays,
    unfinished_lists_what_is_in_progress,
    the_journal_keeps_order_and_data,
    events_are_numbered_without_gaps,
    odd_numbers_and_broken_text_survive_the_log,
    messages_are_kept_once,
    an_unknown_operation_is_said_to_be_unknown,
    *LEASE_CHECKS,
    *CONVERSATION_CHECKS,
)
"""All checks of one store, to be run one by one."""
