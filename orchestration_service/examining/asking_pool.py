"""Asks the session pool: a sandbox in it about its image, and Azure about its size, its network and who may call it."""

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from context_client.embedded.azure_settings import is_on_this_machine
from context_client.pools.settings import POOL_API_VERSION
from deployment_templates.profile import Profile
from deployment_templates.resources.configuration import CUSTOM_CONTAINERS
from orchestration_service.deploying.errors import Refused
from orchestration_service.examining.asking import Asking
from orchestration_service.examining.facts import Answer, Missing, PoolFacts
from orchestration_service.examining.sources import Asked, Sources
from workflow_schemas.sources import own_sources, sources_digest

EXECUTOR = "0fb8eba5-a2bb-4abe-b1c1-49dfad359bb0"
"""Azure's role *Azure ContainerApps Session Executor*."""
POOL_WORDS = "the session pool"
_AZURES = (".azurecontainerapps.io", ".dynamicsessions.io")
_ROLES_VERSION = "2022-04-01"
_POOL_FIX = (
    "Give whoever runs this the role 'Azure ContainerApps Session Executor' on the pool, and let the pool be reached from here; "
    "a full pool is asked again later."
)
_AZURE_FIX = (
    "Say --pool-id with the pool's resource id (az containerapp sessionpool show --name NAME --resource-group GROUP --query id), as "
    "somebody with Azure's role 'Reader' on it."
)


async def ask_pool(asking: Asking, sources: Sources, profile: Profile, asked: Asked, entries: Mapping[str, Any]) -> PoolFacts:
    """Return what is known of the pool that turns run in.

    Asking a sandbox takes one session of the pool, until its cooldown is over.
    """
    address = profile.sandbox.pool_url or _first_in_slot(entries[CUSTOM_CONTAINERS], profile.sandbox.slot)
    digest = asyncio.to_thread(lambda: sources_digest(own_sources()))
    health, pool, callers, own = await asyncio.gather(
        _health(asking, sources, address, is_chosen=profile.sandbox.pool_url is not None),
        _properties(asking, sources, asked),
        _callers(asking, sources, asked),
        digest,
    )
    return PoolFacts(address, health, pool, callers, own)


def endpoints_of(value: str) -> Mapping[str, Sequence[str]] | None:
    """Return the endpoints of each slot in the platform's entry about pools, None where it cannot be understood."""
    try:
        found = json.loads(value)["Endpoints"]
        return {str(slot): [str(url) for url in urls or ()] for slot, urls in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _first_in_slot(entry: Any, slot: str) -> str | None:
    if entry is None or isinstance(entry, Missing):
        return None
    return next(iter((endpoints_of(entry.value) or {}).get(slot, ())), None)


def may_have_token(address: str, *, is_chosen: bool) -> bool:
    """Tell whether a pool may be shown a token of whoever runs this: one of the platform's entries may lead anywhere.

    Args:
        address: Of the pool.
        is_chosen: The operator named it.
    """
    place = urlsplit(address)
    if is_on_this_machine(address):
        return True
    return place.scheme == "https" and (is_chosen or (place.hostname or "").endswith(_AZURES))


async def _health(asking: Asking, sources: Sources, address: str | None, *, is_chosen: bool) -> Answer | Missing | None:
    if address is None:
        return None

    async def ask() -> Answer:
        if not may_have_token(address, is_chosen=is_chosen):
            raise Refused(f"{address!r} is no address of Azure's, and gets no token. Name the pool in the profile if it is yours.", 0)
        query = f"api-version={POOL_API_VERSION}&identifier=doctor-{uuid.uuid4().hex}"
        token = await sources.pool_token.value()
        answer = await asking.get(f"{address.rstrip('/')}/health?{query}", {"Authorization": f"Bearer {token}"})
        if answer.status in (401, 403, 408, 429) or answer.status >= 500:
            raise Refused(f"It answers with status {answer.status}.", answer.status)
        return answer

    return await asking.fact(f"a sandbox in {POOL_WORDS}", ask(), fix=_POOL_FIX)


async def _properties(asking: Asking, sources: Sources, asked: Asked) -> Mapping[str, Any] | Missing:
    what = f"size and network of {POOL_WORDS}"
    if not asked.pool_id:
        return Missing(what, "The profile does not have the pool's resource id.", _AZURE_FIX)
    found = await asking.fact(what, _azure(asking, sources, asked.pool_id, "", POOL_API_VERSION), fix=_AZURE_FIX)
    return found if isinstance(found, Missing) else {**(found.get("properties") or {}), "id": found.get("id")}


async def _callers(asking: Asking, sources: Sources, asked: Asked) -> Sequence[str] | Missing:
    what = f"who may call {POOL_WORDS}"
    if not asked.pool_id:
        return Missing(what, "The profile does not have the pool's resource id.", _AZURE_FIX)
    path = "/providers/Microsoft.Authorization/roleAssignments"
    found = await asking.fact(what, _azure(asking, sources, asked.pool_id, path, _ROLES_VERSION), fix=_AZURE_FIX)
    if isinstance(found, Missing):
        return found
    given = [dict(one.get("properties") or {}) for one in found.get("value") or ()]
    return [str(one.get("principalId")) for one in given if str(one.get("roleDefinitionId", "")).casefold().endswith(EXECUTOR)]


async def _azure(asking: Asking, sources: Sources, pool_id: str, path: str, version: str) -> Mapping[str, Any]:
    token = await sources.azure_token.value()
    url = f"{sources.azure_url}/{pool_id.strip('/')}{path}?api-version={version}"
    answer = await asking.get(url, {"Authorization": f"Bearer {token}"})
    if answer.status != 200 or answer.content is None:
        raise Refused(f"Azure answers with status {answer.status}.", answer.status)
    return answer.content
