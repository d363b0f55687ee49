"""What an operation store promises about ownership: leases, fences and effects. `CHECKS` of `conformance.py` has them all."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import anyio

from orchestration_service.errors import LeaseLost, OperationUnknown
from orchestration_service.operations.conformance_samples import INSTANCE, LONG_SECONDS, accepted, answer, expected, taken
from orchestration_service.operations.conversation import Conversation
from orchestration_service.operations.lease import ABSENT, Claim
from orchestration_service.operations.model import OperationStore
from workflow_schemas.platform import failed_response

SHORT_SECONDS = 0.3
"""A lease a check waits for."""


async def a_claim_is_exclusive_and_visible(store: OperationStore) -> None:
    """A running lease is refused to everybody, its owner included, and shows in the operation."""
    operation_id = await accepted(store)
    claim = await taken(store, operation_id)
    assert (claim.operation_id, claim.owner, claim.generation) == (operation_id, "one", 1)
    assert await store.claim(operation_id, "two", LONG_SECONDS) is None
    assert await store.claim(operation_id, "one", LONG_SECONDS) is None
    (listed,) = [one for one in await store.unfinished(INSTANCE) if one.operation_id == operation_id]
    assert listed.lease is not None
    assert (listed.lease.owner, listed.lease.generation, listed.lease.until) == ("one", 1, claim.until)
    assert await store.get(INSTANCE, operation_id) == listed


async def an_unclaimed_operation_has_no_lease(store: OperationStore) -> None:
    """Neither before the first claim nor after a release does an operation show a lease."""
    operation_id = await accepted(store)
    before = await store.get(INSTANCE, operation_id)
    await store.release(await taken(store, operation_id))
    after = await store.get(INSTANCE, operation_id)
    assert before is not None
    assert after is not None
    assert (before.lease, after.lease) == (None, None)


async def generations_grow_with_each_claim(store: OperationStore) -> None:
    """A lapse, a release and the same owner's return each give the next number; an outdated release changes nothing."""
    operation_id = await accepted(store)
    lapsed = await taken(store, operation_id, seconds=0)
    second = await taken(store, operation_id)
    await store.release(lapsed)
    assert await store.claim(operation_id, "two", LONG_SECONDS) is None, "an outdated claim released the lease"
    await store.release(second)
    third = await taken(store, operation_id)
    assert [lapsed.generation, second.generation, third.generation] == [1, 2, 3]


async def a_lease_lapses(store: OperationStore) -> None:
    """An owner that is silent for longer than its lease is replaced, and not earlier."""
    operation_id = await accepted(store)
    await taken(store, operation_id, seconds=SHORT_SECONDS)
    assert await store.claim(operation_id, "two", LONG_SECONDS) is None
    await anyio.sleep(SHORT_SECONDS * 1.5)
    assert (await taken(store, operation_id, "two")).generation == 2


async def a_renewed_lease_does_not_lapse(store: OperationStore) -> None:
    """Renewing keeps the generation and moves the end; it also revives a lapsed lease nobody has taken."""
    operation_id = await accepted(store)
    claim = await taken(store, operation_id, seconds=0)
    renewed = await store.renew(claim, LONG_SECONDS)
    assert renewed.generation == claim.generation
    assert renewed.until > claim.until
    assert await store.claim(operation_id, "two", LONG_SECONDS) is None


async def a_lost_lease_cannot_be_renewed(store: OperationStore) -> None:
    """Whoever was replaced learns it at the next renewal, and the new lease stays as it is."""
    operation_id = await accepted(store)
    lost = await taken(store, operation_id, seconds=0)
    newer = await taken(store, operation_id, "two")
    with expected(LeaseLost):
        await store.renew(lost, LONG_SECONDS)
    assert (await store.renew(newer, LONG_SECONDS)).generation == 2


async def an_outdated_claim_writes_nothing(store: OperationStore) -> None:
    """Every write under an earlier generation raises `LeaseLost`, and nothing of it is stored."""
    operation_id = await accepted(store)
    lost = await taken(store, operation_id, seconds=0)
    newer = await taken(store, operation_id, "two")
    await store.begin_effect(operation_id, "call", newer)
    before = await _everything(store, operation_id)
    for write in _writes(store, operation_id, lost):
        with expected(LeaseLost):
            await write()
    assert await _everything(store, operation_id) == before


async def the_newest_claim_writes(store: OperationStore) -> None:
    """Every write passes under the newest claim, lapsed or not, as long as nobody has claimed since."""
    operation_id = await accepted(store)
    await taken(store, operation_id, "two", seconds=0)
    claim = await taken(store, operation_id, seconds=0)
    for write in _writes(store, operation_id, claim):
        await write()
    operation, *counts = await _everything(store, operation_id)
    assert operation is not None
    assert counts[:4] == [1, 1, 1, {"call": "ended"}]


def _writes(store: OperationStore, operation_id: str, claim: Claim) -> list[Callable[[], Awaitable[object]]]:
    conversation = Conversation(instance_id=INSTANCE, upn="ann@contoso.com", conversation_id=operation_id, profile="default")
    return [
        lambda: store.save_progress(operation_id, "half way", claim=claim),
        lambda: store.record_step(operation_id, "open", {}, claim),
        lambda: store.append_events(operation_id, [{"type": "text"}], claim),
        lambda: store.record_messages(operation_id, "out", [(1, "event", b"x")], claim),
        lambda: store.begin_effect(operation_id, "call", claim),
        lambda: store.end_effect(operation_id, "call", {"n": 1}, claim),
        lambda: store.save_conversation(conversation, claim),
        lambda: store.finish(operation_id, "Completed", answer(operation_id), claim=claim),
        lambda: store.finish(operation_id, "Completed", answer(operation_id), adopt=True, claim=claim),
    ]


async def _everything(store: OperationStore, operation_id: str) -> tuple[object, ...]:
    return (
        await store.get(INSTANCE, operation_id),
        len(await store.steps(operation_id)),
        len(await store.events(operation_id)),
        len(await store.messages(operation_id, "out")),
        {name: effect.state for name, effect in (await store.effects(operation_id)).items()},
        await store.conversation(INSTANCE, "ann@contoso.com", operation_id),
    )


async def an_ended_operation_is_not_claimed(store: OperationStore) -> None:
    """What has ended is nobody's work any more; only a Failed one can be claimed, by asking for it."""
    failed, completed = await accepted(store), await accepted(store)
    await store.finish(failed, "Failed", failed_response(failed, "broken"))
    await store.finish(completed, "Completed", answer(completed))
    for operation_id in (failed, completed):
        assert await store.claim(operation_id, "one", LONG_SECONDS) is None
    assert await store.claim(failed, "one", LONG_SECONDS, failed_too=True) is not None
    assert await store.claim(completed, "one", LONG_SECONDS, failed_too=True) is None


async def a_late_result_is_adopted(store: OperationStore) -> None:
    """A newer claim corrects a failure by a result; after that no failure counts any more, whoever declares it."""
    operation_id = await accepted(store)
    slow = await taken(store, operation_id, seconds=0)
    settler = await taken(store, operation_id, "settler")
    await store.finish(operation_id, "Failed", failed_response(operation_id, "lost"), claim=settler)
    await store.release(settler)
    with expected(LeaseLost):
        await store.finish(operation_id, "Completed", answer(operation_id), adopt=True, claim=slow)
    late = await store.claim(operation_id, "one", LONG_SECONDS, failed_too=True)
    assert late is not None
    adopted = await store.finish(operation_id, "Completed", answer(operation_id, "found"), adopt=True, claim=late)
    assert (adopted.status, adopted.result) == ("Completed", answer(operation_id, "found"))
    again = await store.finish(operation_id, "Failed", failed_response(operation_id, "lost"), adopt=True, claim=late)
    assert again.status == "Completed"


async def claimable_lists_what_a_claim_would_get(store: OperationStore) -> None:
    """Free and lapsed operations are listed, oldest first; leased, waiting and ended ones are not."""
    instance = str(uuid.uuid4())
    free, leased, lapsed, ended, first = [await accepted(store, instance=instance) for _ in range(4)] + [
        await accepted(store, instance=instance, conversation="c")
    ]
    waiting = await accepted(store, instance=instance, conversation="c")
    await taken(store, leased)
    await taken(store, lapsed, seconds=0)
    await store.finish(ended, "Completed", answer(ended))
    assert [one.operation_id for one in await store.claimable(instance, 10)] == [free, lapsed, first]
    assert [one.operation_id for one in await store.claimable(instance, 1)] == [free]
    await store.finish(first, "Completed", answer(first))
    assert [one.operation_id for one in await store.claimable(instance, 10)] == [free, lapsed, waiting]
    assert await store.claimable(str(uuid.uuid4()), 10) == []


async def a_conversation_is_a_queue(store: OperationStore) -> None:
    """A turn waits for the earlier ones, claimed or not, and for nobody else's."""
    conversation = uuid.uuid4().hex
    first, second = [await accepted(store, conversation=conversation) for _ in range(2)]
    assert await store.claim(second, "two", LONG_SECONDS) is None, "the second turn did not wait"
    await taken(store, first)
    assert await store.claim(second, "two", LONG_SECONDS) is None
    await taken(store, await accepted(store, conversation=conversation, upn="bob@contoso.com"))
    await taken(store, await accepted(store, conversation=conversation, instance=str(uuid.uuid4())))
    for _ in range(2):
        await taken(store, await accepted(store))
    await store.finish(first, "Failed", failed_response(first, "broken"))
    await taken(store, second, "two")


async def an_effect_is_known_by_its_state(store: OperationStore) -> None:
    """Absent, then begun, then ended with its outcome: also for the next owner, and by name and operation."""
    operation_id, other = await accepted(store), await accepted(store)
    claim = await taken(store, operation_id, seconds=0)
    assert await store.begin_effect(operation_id, "call", claim) == ABSENT
    newer = await taken(store, operation_id, "two")
    begun = await store.begin_effect(operation_id, "call", newer)
    assert (begun.state, begun.outcome, begun.begun_by) == ("begun", None, 1)
    ended = await store.end_effect(operation_id, "call", {"records": ["ä", None]}, newer)
    assert (ended.state, ended.outcome, ended.begun_by) == ("ended", {"records": ["ä", None]}, 1)
    assert await store.begin_effect(operation_id, "call", newer) == ended
    assert await store.end_effect(operation_id, "call", {"records": []}, newer) == ended, "the first outcome did not stay"
    assert await store.begin_effect(operation_id, "fetch") == ABSENT
    assert await store.begin_effect(other, "call") == ABSENT
    assert [(name, effect.state) for name, effect in (await store.effects(operation_id)).items()] == [("call", "ended"), ("fetch", "begun")]


async def an_effect_may_end_without_a_beginning(store: OperationStore) -> None:
    """Evidence of an effect is kept also where its beginning was not; an empty outcome is an outcome."""
    operation_id = await accepted(store)
    assert (await store.end_effect(operation_id, "call", {})).state == "ended"
    assert (await store.begin_effect(operation_id, "call")).outcome == {}


async def ownership_of_nothing_is_unknown(store: OperationStore) -> None:
    """Claims and effects about an operation that does not exist raise, and leave nothing behind."""
    claim = await taken(store, await accepted(store))
    nobody = claim.model_copy(update={"operation_id": str(uuid.uuid4())})
    conversation = Conversation(instance_id=INSTANCE, upn="a", conversation_id=nobody.operation_id, profile="default")
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: store.claim(nobody.operation_id, "one", LONG_SECONDS),
        lambda: store.renew(nobody, LONG_SECONDS),
        lambda: store.begin_effect(nobody.operation_id, "call"),
        lambda: store.end_effect(nobody.operation_id, "call", {}),
        lambda: store.record_messages("run", "out", [(1, "event", b"x")], nobody),
        lambda: store.save_conversation(conversation, nobody),
    ]
    for attempt in attempts:
        with expected(OperationUnknown):
            await attempt()
    await store.release(nobody)
    assert await store.effects(nobody.operation_id) == {}
    assert await store.conversation(INSTANCE, "a", nobody.operation_id) is None


LEASE_CHECKS: tuple[Callable[[OperationStore], Awaitable[None]], ...] = (
    a_claim_is_exclusive_and_visible,
    an_unclaimed_operation_has_no_lease,
    generations_grow_with_each_claim,
    a_lease_lapses,
    a_renewed_lease_does_not_lapse,
    a_lost_lease_cannot_be_renewed,
    an_outdated_claim_writes_nothing,
    the_newest_claim_writes,
    an_ended_operation_is_not_claimed,
    a_late_result_is_adopted,
    claimable_lists_what_a_claim_would_get,
    a_conversation_is_a_queue,
    an_effect_is_known_by_its_state,
    an_effect_may_end_without_a_beginning,
    ownership_of_nothing_is_unknown,
)
"""The checks of this file, to be run one by one."""
