"""Who gets a slot, and where."""

from pathlib import Path

import anyio
import pytest

from context_client.pools import DynamicSessions, PoolFull
from context_client.pools.emulator import Fault
from tests.context_client.pools.conftest import World
from tests.context_client.pools.test_provider import run

pytestmark = pytest.mark.anyio


def open_files() -> int:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_first_come_first_served(world: World, tmp_path: Path) -> None:
    """One slot, eight sessions: they get it in the order in which they came, and are told their places."""
    served = tmp_path / "served"  # written by the sandboxes: the answers may overtake each other

    async def turn(sessions: DynamicSessions, number: int) -> None:
        async with world.client(sessions, f"session-{number}") as client:
            await run(client, f"open({str(served)!r}, 'a').write('{number}')")

    async with world.pool(max_sessions=1, cooldown_seconds=0.3) as pool, world.provider(pool, cooldown=0.3) as sessions:
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(turn, sessions, number)
                await anyio.sleep(0.01)
    assert served.read_text() == "01234567"
    places = [news.position for news in world.news if news.session_id == "session-6"]
    assert places == sorted(places, reverse=True)
    assert places[0] > 1
    assert all(news.waiting >= news.position for news in world.news)


async def test_an_estimate_comes_from_what_our_own_sessions_hold(world: World) -> None:
    async with world.pool(max_sessions=2) as pool, world.provider(pool, cooldown=300.0, wait_seconds=0.2) as sessions:
        for name in ("one", "two"):
            async with world.client(sessions, name) as client:
                await run(client, "pass")
        async with world.client(sessions, "three") as client:
            with pytest.raises(PoolFull):
                await run(client, "pass")
    assert world.news[0].estimate_seconds == pytest.approx(300, abs=5)


async def test_who_gives_up_makes_room_in_the_line(world: World) -> None:
    async with world.pool(max_sessions=1, cooldown_seconds=0.6) as pool, world.provider(pool) as sessions:
        async with world.client(sessions, "one") as one, world.client(sessions, "two") as two, world.client(sessions, "three") as three:
            await run(one, "pass")
            async with anyio.create_task_group() as group:
                with anyio.move_on_after(0.2):
                    await run(two, "pass")
                group.start_soon(run, three, "pass")
            assert len(pool.emulator.slots) == 1
            assert sessions.waiting() == 0


async def test_while_there_is_room_nobody_waits_for_another(world: World) -> None:
    """Twenty new sessions that take half a second each are there after about one, not ten."""
    async with world.pool(max_sessions=20, allocation_seconds=0.5) as pool, world.provider(pool) as sessions:
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            for number in range(20):

                async def turn(number: int = number) -> None:
                    async with world.client(sessions, f"session-{number}") as client:
                        await client.get("/files")

                group.start_soon(turn)
        assert anyio.current_time() - began < 6
        assert world.news == []


async def test_sessions_stay_on_the_pool_that_took_them(world: World) -> None:
    """Two pools of three: six sessions fit, each stays where it is, and the seventh waits."""
    async with world.pool(max_sessions=3) as one, world.pool(max_sessions=3) as two, world.provider(one, two, wait_seconds=0.3) as sessions:
        for number in range(6):
            async with world.client(sessions, f"session-{number}") as client:
                await run(client, f"open('mine', 'w').write('{number}')")
        for number in range(6):
            async with world.client(sessions, f"session-{number}") as client:
                assert await run(client, "print(open('mine').read())") == f"{number}\n"
        assert len(one.emulator.slots) == len(two.emulator.slots) == 3
        assert [figures.held for figures in sessions.figures()] == [3, 3]
        async with world.client(sessions, "session-6") as client:
            with pytest.raises(PoolFull, match=r"'pool-0'.*'pool-1'"):
                await run(client, "pass")


async def test_another_replica_finds_the_same_sandbox(world: World) -> None:
    """The lot is drawn from the identifier, so a turn that is taken over goes on in its sandbox."""
    async with world.pool() as one, world.pool() as two:
        for number in range(6):
            async with world.provider(one, two) as first, world.client(first, f"session-{number}") as client:
                await run(client, "open('mine', 'w').write('1')")
            async with world.provider(one, two) as second, world.client(second, f"session-{number}") as client:
                assert await run(client, "print(open('mine').read())") == "1\n"
        assert len(one.emulator.slots) + len(two.emulator.slots) == 6
        assert len(one.emulator.slots) not in {0, 6}


async def test_who_is_asked_to_slow_down_stays(world: World) -> None:
    """429 without the word that the pool is full: the sandbox is still there, so the session does not move to another pool."""
    async with world.pool() as one, world.pool() as two, world.provider(one, two) as sessions, world.client(sessions, "one") as client:
        await run(client, "open('kept', 'w').write('1')")
        for pool in (one, two):
            pool.emulator.faults.add(Fault(kind="status", status=429, times=2, retry_after_seconds=0))
        assert await run(client, "print(open('kept').read())") == "1\n"
        assert sorted([len(one.emulator.faults.happened), len(two.emulator.faults.happened)]) == [0, 2]


async def test_a_pool_that_is_away_is_passed_over(world: World) -> None:
    async with world.pool() as well, world.pool() as ill, world.provider(ill, well) as sessions:
        ill.emulator.faults.add(Fault(kind="status", status=503, times=100))
        for number in range(4):
            async with world.client(sessions, f"session-{number}") as client:
                assert await run(client, "print(1)") == "1\n"
        assert len(well.emulator.slots) == 4


async def test_a_cooldown_holds_the_slot_and_then_frees_it(world: World) -> None:
    async with world.pool(max_sessions=1, cooldown_seconds=0.4) as pool, world.provider(pool, cooldown=0.4) as sessions:
        async with world.client(sessions, "one") as one, world.client(sessions, "two") as two:
            await run(one, "open('kept', 'w').write('1')")
            began = anyio.current_time()
            await run(two, "pass")
            assert anyio.current_time() - began >= 0.3
            assert await run(one, "import os\nprint(os.listdir())") == "[]\n"


async def test_three_hundred_sessions_leave_nothing(world: World) -> None:
    """Twenty slots for three hundred sessions: all are served, and no slot, place in the line or open file is left."""
    before = open_files()
    async with world.pool(max_sessions=20, cooldown_seconds=0.05) as pool:
        async with world.provider(pool, cooldown=0.05, wait_seconds=60, retry_seconds=0.02) as sessions:
            served: list[int] = []

            async def turn(number: int) -> None:
                async with world.client(sessions, f"session-{number}") as client:
                    assert (await client.get("/files")).is_success
                    served.append(number)

            async with anyio.create_task_group() as group:
                for number in range(300):
                    group.start_soon(turn, number)
            assert len(served) == 300
            await anyio.sleep(0.1)
            assert (sessions.waiting(), sessions.figures()[0].held, len(pool.emulator.slots)) == (0, 0, 0)
    assert open_files() <= before + 5
