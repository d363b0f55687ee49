"""The Cosmos DB and Blob store keeps what the port promises, on emulators of both."""

import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from azure.cosmos.aio import CosmosClient
from azure.storage.blob.aio import ContainerClient
from pydantic import SecretStr, ValidationError

from orchestration_service.errors import LeaseLost, StoreBusy, StoreUnusable
from orchestration_service.operations.conformance import CHECKS
from orchestration_service.operations.conversation import Conversation
from orchestration_service.operations.cosmos import CosmosOperations
from orchestration_service.operations.cosmos_settings import CosmosSettings
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.model import NewOperation
from tests.emulators.servers import AZURITE_KEY, COSMOS_KEY, Emulator
from workflow_schemas.platform import CompletionResponse

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulators


@pytest.fixture
def settings(cosmos_emulator: Emulator, blob_emulator: Emulator, database_name: str) -> CosmosSettings:
    return CosmosSettings(
        endpoint=cosmos_emulator.url,
        key=SecretStr(COSMOS_KEY),
        database=database_name,
        blob_endpoint=blob_emulator.url,
        blob_key=SecretStr(AZURITE_KEY),
        blob_container=database_name,
        create_missing=True,
    )


@pytest.fixture
async def operations(settings: CosmosSettings) -> AsyncIterator[CosmosOperations]:
    async with CosmosOperations(settings) as store:
        yield store


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conformance(operations: CosmosOperations, check) -> None:  # type: ignore[no-untyped-def]
    await check(operations)


def new(operation_id: str, request: bytes = b"{}", conversation: str | None = None) -> NewOperation:
    return NewOperation(
        operation_id=operation_id,
        instance_id="i",
        upn="ann@contoso.com",
        conversation_id=conversation,
        agent_name="a",
        fingerprint="f",
        request=request,
    )


async def documents(settings: CosmosSettings) -> list[dict[str, Any]]:
    """Every document there is, as another program would see it."""
    async with CosmosClient(settings.endpoint, COSMOS_KEY, enable_endpoint_discovery=False) as client:
        container = client.get_database_client(settings.database).get_container_client(settings.container)
        return [document async for document in container.read_all_items()]


async def blob_names(settings: CosmosSettings) -> list[str]:
    async with ContainerClient(settings.blob_endpoint, settings.blob_container, credential=AZURITE_KEY) as container:
        return [name async for name in container.list_blob_names()]


async def test_two_replicas_race_for_a_lease_and_one_gets_it(settings: CosmosSettings) -> None:
    """Each of 20 operations is claimed by two clients at once: one claim each, and only its holder can write."""
    claims: list[Claim | None] = []

    async with CosmosOperations(settings) as one, CosmosOperations(settings) as other:

        async def claim(store: CosmosOperations, operation_id: str, owner: str) -> None:
            claims.append(await store.claim(operation_id, owner, 30))

        for number in range(20):
            await one.create(new(f"op-{number}"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(claim, one, f"op-{number}", "one")
                tasks.start_soon(claim, other, f"op-{number}", "other")
    assert len([claim for claim in claims if claim]) == 20


async def test_a_replica_that_was_overtaken_can_write_nowhere(settings: CosmosSettings) -> None:
    """After a take-over the first owner's steps, messages and conversation are refused, in whichever partition they lie."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    async with CosmosOperations(settings, clock=lambda: now[0]) as one, CosmosOperations(settings, clock=lambda: now[0]) as other:
        await one.create(new("op", conversation="c"))
        old = await one.claim("op", "one", 30)
        assert old is not None
        await one.record_messages("run", "out", [(1, "a", b"1")], old)
        now[0] += timedelta(minutes=1)
        assert await other.claim("op", "other", 30) is not None
        conversation = Conversation(instance_id="i", upn="ann@contoso.com", conversation_id="c", profile="strict")
        for write in (
            lambda: one.record_step("op", "late", {}, old),
            lambda: one.record_messages("run", "out", [(2, "a", b"2")], old),
            lambda: one.record_messages("new-run", "out", [(1, "a", b"2")], old),
            lambda: one.save_conversation(conversation, old),
        ):
            with pytest.raises(LeaseLost):
                await write()
        assert [message.sequence for message in await other.messages("run", "out")] == [1]


@pytest.mark.parametrize("seconds", [4, pytest.param(30, marks=pytest.mark.faults)])
async def test_a_store_that_is_away_for_a_while_loses_and_doubles_nothing(
    settings: CosmosSettings, cosmos_emulator: Emulator, seconds: int
) -> None:
    """Writes begun while the account does not answer wait for it; what an unheard request did is not done again."""
    patient = settings.model_copy(update={"request_seconds": 0.5, "patience_seconds": 45})
    async with CosmosOperations(patient) as store:
        await store.create(new("op"))
        async with anyio.create_task_group() as tasks:
            with cosmos_emulator.unavailable():
                for number in range(4):
                    tasks.start_soon(store.append_events, "op", [{"type": "text", "n": number}] * 5)
                tasks.start_soon(store.record_step, "op", "run", {"pid": 1})
                tasks.start_soon(store.record_messages, "run", "out", [(1, "a", b"1"), (2, "b", b"2")])
                tasks.start_soon(store.create, new("second", conversation="c"))
                await anyio.sleep(seconds)
        assert [event.sequence for event in await store.events("op")] == list(range(1, 21))
        assert sorted(event.event["n"] for event in await store.events("op")) == sorted([0, 1, 2, 3] * 5)
        assert [step.step for step in await store.steps("op")] == ["run"]
        assert len(await store.messages("run", "out")) == 2
        assert [operation.turn_number for operation in await store.unfinished("i")] == [1, 1]


async def test_a_store_that_stays_away_says_so(settings: CosmosSettings, cosmos_emulator: Emulator) -> None:
    async with CosmosOperations(settings.model_copy(update={"request_seconds": 0.3, "patience_seconds": 0.5})) as store:
        with cosmos_emulator.unavailable(), pytest.raises(StoreBusy, match="does not answer"):
            await store.get("i", "op")


async def test_an_account_that_is_not_there_stops_the_start(settings: CosmosSettings) -> None:
    with pytest.raises(StoreBusy, match="does not answer"):
        async with CosmosOperations(settings.model_copy(update={"endpoint": "http://127.0.0.1:9"})):
            pass


async def test_missing_containers_are_named_and_not_made(settings: CosmosSettings) -> None:
    with pytest.raises(StoreUnusable, match="deployment templates"):
        async with CosmosOperations(settings.model_copy(update={"create_missing": False})):
            pass


async def test_large_values_go_to_blobs_and_come_back(settings: CosmosSettings) -> None:
    """A request of 20 MB, an event log of 9 MB and a message of 5 MB: no document comes near 2 MB, and pruning leaves no blob."""
    request, message, text = os.urandom(20_000_000), os.urandom(5_000_000), os.urandom(1_500_000).hex()
    async with CosmosOperations(settings) as store:
        await store.create(new("op", request))
        claim = await store.claim("op", "one", 30)
        assert claim is not None
        await store.append_events("op", [{"type": "text", "content": text}] * 3, claim)
        await store.record_messages("run", "out", [(1, "a", message), (2, "b", b"small")], claim)
        assert (await store.request("op")).body == request
        assert [event.event["content"] for event in await store.events("op", after=1)] == [text] * 2
        assert [one.body for one in await store.messages("run", "out")] == [message, b"small"]
        assert max(len(json.dumps(document)) for document in await documents(settings)) < 300_000
        assert len(await blob_names(settings)) == 3
        await store.finish("op", "Completed", CompletionResponse(operation_id="op", completion="done"))
        assert await store.prune("i", datetime.now(UTC) + timedelta(seconds=1)) == 1
        assert await blob_names(settings) == []


async def test_everything_has_an_end_and_a_partition_of_its_own(settings: CosmosSettings) -> None:
    """Each document says when it expires; operations, runs, conversations and the list lie in partitions of their own."""
    async with CosmosOperations(settings) as store:
        await store.create(new("op", conversation="c"))
        claim = await store.claim("op", "one", 30)
        await store.append_events("op", [{"type": "text"}], claim)
        await store.record_messages("run", "out", [(1, "a", b"1")], claim)
    found = await documents(settings)
    ends = {document["pk"].split(":")[0]: document["ttl"] for document in found}
    assert ends == {"op": 30 * 86_400, "run": 30 * 86_400, "index": 30 * 86_400, "conversation": 365 * 86_400}
    assert all(document["ttl"] > 0 for document in found)


async def test_unfinished_operations_are_listed_in_many_partitions(settings: CosmosSettings) -> None:
    async with CosmosOperations(settings) as store:
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(store.create, new(f"op-{number}"))
        assert len(await store.unfinished("i")) == 40
    lists = [document["pk"] for document in await documents(settings) if document["kind"] == "line"]
    assert len(set(lists)) > 8


@pytest.mark.parametrize("address", ["http://account.example", "ftp://account.example", "account.example"])
def test_an_address_without_protection_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="https"):
        CosmosSettings(endpoint=address, blob_endpoint="https://account.example")


async def test_calls_cut_at_any_moment_are_completed_by_their_repetition(settings: CosmosSettings) -> None:
    """Acceptance and end of 12 operations, each cut a little later than the last: no turn number is doubled, nothing stays unfinished."""
    async with CosmosOperations(settings) as store:
        for number in range(12):
            with anyio.move_on_after(number / 400):
                await store.create(new(f"op-{number}", conversation="c"))
            await store.unfinished("i")  # a reconciler that looks in between does no harm
            await store.create(new(f"op-{number}", conversation="c"))
        accepted = [await store.get("i", f"op-{number}") for number in range(12)]
        assert [operation.turn_number for operation in accepted if operation] == list(range(1, 13))
        for number in range(12):
            claim = await store.claim(f"op-{number}", "one", 30)
            assert claim is not None, "the end of the turn before was lost"
            answer = CompletionResponse(operation_id=f"op-{number}", completion="done")
            with anyio.move_on_after(number / 1000):
                await store.finish(f"op-{number}", "Completed", answer, claim=claim)
            ended = await store.finish(f"op-{number}", "Completed", answer, claim=claim)
            assert ended.result is not None
        assert await store.unfinished("i") == []
