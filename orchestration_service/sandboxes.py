"""Where the embedded Context API finds sandboxes, as the operator has chosen: on this machine, in containers, or in session pools.

What only one of them needs is imported when it is chosen: an installation without the extras is whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from context_client.embedded.provider import SandboxProvider
from context_client.sandboxes.limits import SandboxLimits
from context_client.sandboxes.local import LocalSandboxes, LocalSandboxSettings, SandboxFacts
from orchestration_service.errors import SettingsError
from orchestration_service.settings import PREFIX, Settings
from orchestration_service.waiting import WaitingRoom
from workflow_schemas.sources import own_sources, sources_digest

if TYPE_CHECKING:
    from context_client.pools import DynamicSessions, PoolFigures, TokenSource

logger = logging.getLogger(__name__)

_TOLD_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class ChosenSandboxes:
    """A provider that is open, and what it makes."""

    provider: SandboxProvider
    """Answers where a session's sandbox is."""

    in_words: str
    """What sandboxes are made of here, for receipts."""


@asynccontextmanager
async def open_sandboxes(settings: Settings, waiting: WaitingRoom | None = None) -> AsyncIterator[ChosenSandboxes]:
    """Open the chosen provider until the end of the block; its sandboxes end with it where they are ours to end.

    Args:
        settings: What the operator chose.
        waiting: Hears of sessions that wait for room.

    Raises:
        SandboxUnavailable: No sandbox of that kind can be made here; the message says what to do.
        SettingsError: Packages of the chosen kind are not installed.
    """
    async with AsyncExitStack() as stack:
        match settings.sandboxes:
            case "container":
                yield await _containers(settings, stack)
            case "session-pool":
                yield await _session_pools(settings, stack, waiting or WaitingRoom())
            case "local":
                local = await stack.enter_async_context(LocalSandboxes(LocalSandboxSettings(limits=_local_limits(settings))))
                yield ChosenSandboxes(local, _in_words(local.describe()))


async def _containers(settings: Settings, stack: AsyncExitStack) -> ChosenSandboxes:
    from context_client.sandboxes.containers import ContainerLimits, ContainerSandboxes, ContainerSandboxSettings

    limits = ContainerLimits()
    wanted = ContainerSandboxSettings(
        instance_id=settings.instance_id,
        image=settings.container_image,
        engine_url=settings.container_engine_url,
        limits=limits.sized(limits.size.within(settings.largest_sandbox)),
        expected=await _own_version(),
    )
    containers = await stack.enter_async_context(ContainerSandboxes(wanted))
    return ChosenSandboxes(containers, containers.describe().in_words())


async def _session_pools(settings: Settings, stack: AsyncExitStack, waiting: WaitingRoom) -> ChosenSandboxes:
    from context_client.pools import DynamicSessions, DynamicSessionsSettings

    assert settings.session_pool_key is not None  # the settings see to it
    wanted = DynamicSessionsSettings(
        pools=settings.session_pools,
        identifier_key=settings.session_pool_key,
        api_version=settings.session_pool_api_version,
        wait_seconds=settings.session_pool_wait_seconds,
        expected=await _own_version(),
    )
    tokens = await _tokens(settings, stack)
    pools = await stack.enter_async_context(DynamicSessions(wanted, tokens=tokens, observer=waiting.hear))
    await stack.enter_async_context(_telling(pools))
    names = ", ".join(f"{pool.name} ({pool.region})" if pool.region else pool.name for pool in settings.session_pools)
    return ChosenSandboxes(pools, f"session pool: {names}")


async def _own_version() -> dict[str, str]:
    """Return what a sandbox made elsewhere must say of itself: a turn in one of another version would fail somewhere in the middle."""
    return {"source_digest": await asyncio.to_thread(lambda: sources_digest(own_sources()))}


@asynccontextmanager
async def _telling(pools: DynamicSessions) -> AsyncIterator[None]:
    """Log the figures of each pool now and then while they change, and at the end; as a warning where it refused or let wait."""
    told: dict[str, PoolFigures] = {}

    def tell() -> None:
        for figures in pools.figures():
            before = told.get(figures.pool)
            if before is None or before.in_words() != figures.in_words():
                troubles = figures.troubles - (before.troubles if before else 0)
                logger.log(logging.WARNING if troubles else logging.INFO, "%s; %d wait now", figures.in_words(), pools.waiting())
                told[figures.pool] = figures

    async def tell_for_ever() -> None:
        while True:
            await asyncio.sleep(_TOLD_EVERY_SECONDS)
            tell()

    task = asyncio.create_task(tell_for_ever(), name="figures of session pools")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        tell()


async def _tokens(settings: Settings, stack: AsyncExitStack) -> TokenSource:
    from context_client.pools import FixedToken

    if settings.session_pool_token is not None:
        return FixedToken(settings.session_pool_token.get_secret_value())
    try:
        from context_client.pools.identity import own_identity

        return await stack.enter_async_context(own_identity())
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{PREFIX}SANDBOXES is 'session-pool', and the packages for Azure are not installed ({error.name!r} is missing). Install "
            "the extra 'azure': pip install 'foundationallm-claude-code[azure]', in a checkout ./dev setup.",
            (f"{PREFIX}SANDBOXES",),
        ) from error


def _local_limits(settings: Settings) -> SandboxLimits:
    """Limits of sandboxes for which nobody asks for any; all of an idle machine's processor, unless the operator has set a bound."""
    largest = settings.largest_sandbox
    if "sandbox_max_cpus" not in settings.model_fields_set:
        largest = largest.model_copy(update={"cpus": None})
    return SandboxLimits().sized(SandboxLimits().size.within(largest))


def _in_words(facts: SandboxFacts) -> str:
    user = "a system user of its own" if facts.separate_user else "the service's system user"
    return f"{facts.kind} {facts.version}, no network, {user}, {facts.limits.memory_bytes // 2**20} MiB"
