"""What the provider does with pools that are well."""

import httpx
import pytest

from context_client.pools import DynamicSessions
from tests.context_client.pools.conftest import UPN, Pool, World

pytestmark = pytest.mark.anyio


async def run(client: httpx.AsyncClient, code: str) -> str:
    answer = await client.post("/code/execute", json={"code": code})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["detail"]["output"])


async def test_a_session_keeps_its_sandbox(client: httpx.AsyncClient, pool: Pool) -> None:
    await run(client, "open('kept', 'w').write('1')")
    assert await run(client, "print(open('kept').read())") == "1\n"
    assert len(pool.emulator.slots) == 1


async def test_no_id_of_ours_reaches_a_pool(world: World, sessions: DynamicSessions, pool: Pool) -> None:
    """Two users with the same hostile session id are in two sandboxes, under names nobody could guess."""
    hostile = "code-../a b&identifier=x#_"
    async with world.client(sessions, hostile, UPN) as one, world.client(sessions, hostile, "eve@contoso.example") as two:
        await run(one, "open('secret', 'w').write('1')")
        assert await run(two, "import os\nprint(os.listdir())") == "[]\n"
    names = [slot.identifier for slot in pool.emulator.slots._taken.values()]
    assert len(set(names)) == 2
    assert all(len(name) == 55 and name.replace("-", "").isalnum() for name in names)
