"""Each fault of a pool: the call waits and goes through, or fails with words that say why."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from context_client.embedded.provider import SandboxEndpoint
from context_client.pools import DynamicSessions, PoolFull, PoolRefused, PoolUnreachable
from context_client.pools.emulator import Fault
from context_client.pools.local_tokens import LocalTokens
from tests.context_client.pools.conftest import KEY, Pool, World
from tests.context_client.pools.test_provider import run

pytestmark = pytest.mark.anyio


def marks(pool: Pool) -> int:
    """How many files named `ran-…` all sandboxes have: one for each time the code ran."""
    return sum(1 for _ in Path(pool.containers._folder).rglob("ran-*"))


RAN = "import uuid\nopen('ran-' + uuid.uuid4().hex, 'w').close()\nprint('done')"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(kind="full", times=3), id="429"),
        pytest.param(Fault(kind="full", times=3, status=500), id="500 with the code"),
        pytest.param(Fault(kind="status", times=3, status=500), id="500 without words"),
        pytest.param(Fault(kind="full", times=2, status=404), id="404 with the code"),
        pytest.param(Fault(kind="full", times=1, retry_after_seconds=1), id="Retry-After"),
        pytest.param(Fault(kind="status", times=2, status=503), id="503"),
        pytest.param(Fault(kind="token", times=1), id="token refused once"),
        pytest.param(Fault(kind="cut", times=1), id="cut while a slot is asked for"),
        pytest.param(Fault(kind="slow", seconds=0.3), id="slow"),
    ],
)
async def test_a_new_session_waits_for_its_slot(client: httpx.AsyncClient, pool: Pool, fault: Fault) -> None:
    """It gets one in the end, and the code runs once."""
    pool.emulator.faults.add(fault)
    began = anyio.current_time()
    assert await run(client, RAN) == "done\n"
    assert len(pool.emulator.faults.happened) == fault.times
    assert marks(pool) == 1
    assert anyio.current_time() - began >= (fault.retry_after_seconds or fault.seconds)


async def test_a_refusal_mid_turn_is_waited_for(client: httpx.AsyncClient, pool: Pool, world: World) -> None:
    """A session that has a slot goes ahead of the line, and its code runs once all the same."""
    await run(client, "pass")
    pool.emulator.faults.add(Fault(kind="full", times=3))
    assert await run(client, RAN) == "done\n"
    assert marks(pool) == 1
    assert {news.position for news in world.news} == {0}


async def test_a_streamed_body_is_not_sent_twice(client: httpx.AsyncClient, pool: Pool) -> None:
    """Its owner hears 429 once a slot is there again, and repeats."""
    await run(client, "pass")
    pool.emulator.faults.add(Fault(kind="full", path="/files/upload"))

    async def body() -> AsyncIterator[bytes]:
        yield b'{"code": "print(1)"}'

    assert (await client.post("/files/upload", content=body())).status_code == 429
    assert await run(client, "print(1)") == "1\n"


@pytest.mark.parametrize("kind", ["cut", "cut-half"])
async def test_a_cut_call_fails_and_the_next_goes_through(client: httpx.AsyncClient, pool: Pool, kind: str) -> None:
    await run(client, "open('kept', 'w').write('1')")
    pool.emulator.faults.add(Fault(kind=kind, path="/code/execute"))
    with pytest.raises(httpx.TransportError):
        await run(client, "pass")
    assert await run(client, "print(open('kept').read())") == "1\n"


async def test_an_evicted_session_is_an_empty_sandbox(client: httpx.AsyncClient, pool: Pool) -> None:
    """Silently, as at the real pool: the generation marker inside is what tells."""
    await run(client, "open('kept', 'w').write('1')")
    pool.emulator.faults.add(Fault(kind="evict"))
    assert await run(client, "import os\nprint(os.listdir())") == "[]\n"


async def test_an_evicted_session_waits_when_the_pool_is_full(world: World) -> None:
    async with world.pool(max_sessions=1, cooldown_seconds=0.5) as pool, world.provider(pool) as sessions:
        async with world.client(sessions, "one") as one, world.client(sessions, "two", "eve@contoso.example") as two:
            await run(one, "open('kept', 'w').write('1')")
            pool.emulator.slots.evict(next(iter(pool.emulator.slots._taken)))
            await run(two, "pass")
            assert await run(one, "import os\nprint(os.listdir())") == "[]\n"


async def test_a_full_pool_is_an_error_after_the_wait(world: World) -> None:
    async with world.pool(max_sessions=1) as pool, world.provider(pool, wait_seconds=0.4) as sessions:
        async with world.client(sessions, "one") as one, world.client(sessions, "two") as two:
            await run(one, "pass")
            with pytest.raises(PoolFull, match=r"place 1 in the line; 'pool-0': HTTP 429 'sessionscount.*raise the pool's maximum"):
                await run(two, "pass")
            assert sessions.waiting() == 0
            assert await run(one, "print(1)") == "1\n"


async def test_tokens_are_renewed_ahead_and_once_when_refused(world: World, pool: Pool) -> None:
    class Counting(LocalTokens):
        fetched = 0

        async def fetch(self):  # type: ignore[no-untyped-def]
            self.fetched += 1
            return await super().fetch()

    short = Counting(KEY.encode(), lifetime_seconds=10)
    async with world.provider(pool, tokens=short) as sessions, world.client(sessions, "one") as client:
        await run(client, "pass")
        assert short.fetched == 2, "one that ends within minutes is replaced while it is still good"
    lasting = Counting(KEY.encode())
    async with world.provider(pool, tokens=lasting) as sessions, world.client(sessions, "one") as client:
        for _ in range(3):
            await run(client, "pass")
        assert lasting.fetched == 1
        pool.emulator.faults.add(Fault(kind="token"))
        assert await run(client, "print(1)") == "1\n"
        assert lasting.fetched == 2


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        pytest.param(LocalTokens(KEY.encode(), audience="https://management.azure.com"), "unauthorized", id="wrong audience"),
        pytest.param(LocalTokens(b"another key"), "unauthorized", id="not signed by the issuer"),
        pytest.param(LocalTokens(KEY.encode(), lifetime_seconds=-4000), "unauthorized", id="expired"),
    ],
)
async def test_a_token_that_is_refused_twice_is_an_error(world: World, pool: Pool, tokens: LocalTokens, words: str) -> None:
    async with world.provider(pool, tokens=tokens) as sessions, world.client(sessions, "one") as client:
        with pytest.raises(PoolRefused, match=f"(?s){words}.*Session Executor"):
            await run(client, "pass")


async def test_a_clock_that_is_wrong_is_named(world: World) -> None:
    async with world.pool(clock_ahead_seconds=7200) as pool, world.provider(pool) as sessions, world.client(sessions, "one") as client:
        with pytest.raises(PoolRefused, match=r"the pool's clock is 7\d\d\d seconds ahead of ours"):
            await run(client, "pass")


async def test_clocks_may_differ_by_minutes(world: World) -> None:
    async with world.pool(clock_ahead_seconds=-200) as pool, world.provider(pool) as sessions, world.client(sessions, "one") as client:
        assert await run(client, "print(1)") == "1\n"


async def test_no_identity_is_said_in_its_own_words(world: World, pool: Pool) -> None:
    class Nobody:
        async def fetch(self) -> object:
            raise RuntimeError("no managed identity answers at this machine")

    async with world.provider(pool, tokens=Nobody()) as sessions, world.client(sessions, "one") as client:
        with pytest.raises(PoolRefused, match="no managed identity answers"):
            await run(client, "pass")


async def test_a_pool_that_is_away_is_an_error_soon(world: World, pool: Pool) -> None:
    gone = Pool(pool.emulator, "http://127.0.0.1:9", None)
    async with world.provider(gone) as sessions, world.client(sessions, "one") as client:
        with pytest.raises(PoolUnreachable, match="'pool-0': ConnectError"):
            await run(client, "pass")


async def test_what_a_container_says_is_not_taken_for_the_pool(client: httpx.AsyncClient) -> None:
    """A missing file is a 500 of the container, and stays one."""
    answer = await client.post("/files/download", json={"file_name": "missing"})
    assert answer.status_code == 500


async def test_too_much_is_refused_before_it_is_sent(world: World, pool: Pool) -> None:
    async with world.provider(pool, upload_limit_bytes=1000) as sessions, world.client(sessions, "one") as client:
        await run(client, "pass")
        answer = await client.post("/files/upload", content=b"x" * 1001)
        assert answer.status_code == 413
        assert sessions.figures()[0].verdicts == {"too_large": 1}


async def test_the_pool_refuses_too_much(world: World) -> None:
    async with world.pool(upload_limit_bytes=1000) as pool, world.provider(pool) as sessions, world.client(sessions, "one") as client:
        assert (await client.post("/files/upload", content=b"x" * 1001)).status_code == 413


async def test_the_pool_cuts_what_takes_too_long(world: World) -> None:
    class Sleeper(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await anyio.sleep(0 if request.method == "GET" else 30)
            return httpx.Response(200)

    async with world.pool(request_seconds=0.2) as pool, world.provider(pool) as sessions, world.client(sessions, "one") as client:
        await client.get("/files")
        (slot,) = pool.emulator.slots._taken.values()
        pool.containers.endpoints[slot.guid] = SandboxEndpoint(base_url="http://container", transport=Sleeper())
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/code/execute", content=b"")


async def test_a_hostile_container_stops_only_itself(world: World, sessions: DynamicSessions, pool: Pool) -> None:
    """It imitates a full pool: its own session waits, another one does not notice."""
    async with world.client(sessions, "bad") as bad, world.client(sessions, "good") as good:
        await run(bad, "pass")
        (name,) = pool.emulator.slots._taken
        pool.emulator.faults.add(Fault(kind="full", identifier=name, times=1000, retry_after_seconds=3600))
        with anyio.move_on_after(0.5):
            await run(bad, "pass")
        with anyio.fail_after(5):
            assert await run(good, "print(1)") == "1\n"
