"""Tokens are got once, kept, and renewed ahead of their end."""

import anyio
import pytest

from orchestration_service.brokers.errors import IdentityAway
from orchestration_service.brokers.kept import Kept, Lasting

pytestmark = pytest.mark.anyio


class Issuer:
    """Gives numbered tokens that last for an hour of a clock that stands until it is set."""

    def __init__(self, lifetime: float = 3600.0) -> None:
        self.now = 1000.0
        self.lifetime = lifetime
        self.given = 0
        self.is_away = False
        self.may_answer = anyio.Event()
        self.may_answer.set()
        self.kept = Kept(self.fetch, clock=lambda: self.now)

    async def fetch(self) -> Lasting[str]:
        """Give the next token."""
        await self.may_answer.wait()
        if self.is_away:
            raise IdentityAway("test")
        self.given += 1
        return Lasting(f"token {self.given}", self.now + self.lifetime)


async def test_all_who_ask_at_once_share_one_token() -> None:
    issuer, got = Issuer(), []

    async def one() -> None:
        got.append(await issuer.kept.get())

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one)
    assert got == ["token 1"] * 10


async def test_a_token_is_renewed_ahead_while_others_go_on_with_the_present_one() -> None:
    issuer = Issuer()
    assert await issuer.kept.get() == "token 1"
    issuer.now += 3600 - 299
    issuer.may_answer = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(issuer.kept.get)
        await anyio.wait_all_tasks_blocked()
        assert await issuer.kept.get() == "token 1"
        issuer.may_answer.set()
    assert await issuer.kept.get() == "token 2"


async def test_an_issuer_that_is_away_matters_only_when_the_token_ends() -> None:
    issuer = Issuer()
    await issuer.kept.get()
    issuer.is_away = True
    issuer.now += 3600 - 100
    assert await issuer.kept.get() == "token 1"
    issuer.now += 101
    with pytest.raises(IdentityAway):
        await issuer.kept.get()
    issuer.is_away = False
    assert await issuer.kept.get() == "token 2"


async def test_a_token_of_a_short_life_is_not_asked_for_each_time() -> None:
    issuer = Issuer(lifetime=120)
    for _ in range(3):
        assert await issuer.kept.get() == "token 1"
    issuer.now += 61
    assert await issuer.kept.get() == "token 2"
    assert "token" not in repr(Lasting("token", 1.0))
