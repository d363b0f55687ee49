"""Where the embedded Context API finds sandboxes, as the operator has chosen: on this machine, in containers, or in session pools.

What only one of them needs is imported when it is chosen: an installation without the extras is whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from context_client.embedded.provider import SandboxProvider
from context_client.sandboxes.local import LocalSandboxes, SandboxFacts
from orchestration_service.errors import SettingsError
from orchestration_service.settings import PREFIX, Settings
from workflow_schemas.sources import own_sources, sources_digest

if TYPE_CHECKING:
    from context_client.pools import TokenSource


@dataclass(frozen=True)
class ChosenSandboxes:
    """A provider that is open, and what it makes."""

    provider: SandboxProvider
    """Answers where a session's sandbox is."""

    in_words: str
    """What sandboxes are made of here, for receipts."""


@asynccontextmanager
async def open_sandboxes(settings: Settings) -> AsyncIterator[ChosenSandboxes]:
    """Open the chosen provider until the end of the block; its sandboxes end with it where they are ours to end.

    Raises:
        SandboxUnavailable: No sandbox of that kind can be made here; the message says what to do.
        SettingsError: Packages of the chosen kind are not installed.
    """
    async with AsyncExitStack() as stack:
        match settings.sandboxes:
            case "container":
                yield await _containers(settings, stack)
            case "session-pool":
                yield await _session_pools(settings, stack)
            case "local":
                local = await stack.enter_async_context(LocalSandboxes())
                yield ChosenSandboxes(local, _in_words(local.describe()))


async def _containers(settings: Settings, stack: AsyncExitStack) -> ChosenSandboxes:
    from context_client.sandboxes.containers import ContainerSandboxes, ContainerSandboxSettings

    wanted = ContainerSandboxSettings(
        instance_id=settings.instance_id,
        image=settings.container_image,
        engine_url=settings.container_engine_url,
        expected={"source_digest": await asyncio.to_thread(lambda: sources_digest(own_sources()))},
    )
    containers = await stack.enter_async_context(ContainerSandboxes(wanted))
    return ChosenSandboxes(containers, containers.describe().in_words())


async def _session_pools(settings: Settings, stack: AsyncExitStack) -> ChosenSandboxes:
    from context_client.pools import DynamicSessions, DynamicSessionsSettings

    assert settings.session_pool_key is not None  # the settings see to it
    wanted = DynamicSessionsSettings(pools=settings.session_pools, identifier_key=settings.session_pool_key)
    pools = await stack.enter_async_context(DynamicSessions(wanted, tokens=await _tokens(settings, stack)))
    names = ", ".join(f"{pool.name} ({pool.region})" if pool.region else pool.name for pool in settings.session_pools)
    return ChosenSandboxes(pools, f"session pool: {names}")


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


def _in_words(facts: SandboxFacts) -> str:
    user = "a system user of its own" if facts.separate_user else "the service's system user"
    return f"{facts.kind} {facts.version}, no network, {user}, {facts.limits.memory_bytes // 2**20} MiB"
