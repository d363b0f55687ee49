"""Asks the service what the platform would ask it, except for work: its status, and a poll of a turn that nobody has."""

import asyncio
import json
import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from deployment_templates.resources.models import SERVICE_ENDPOINT
from orchestration_service.examining.asking import Asking
from orchestration_service.examining.facts import Answer, Missing, ServiceFacts

GROUPS = 800
"""Groups of the user with many of them: as many as fit into a token, several times over, and some 31 KB of header."""
REPLICA_ASKS = 5
"""How often a service is asked for its name: replicas answer in turn or by lot."""
_FIX = "If it can only be reached from inside the platform's network, forward a port and say --service-url http://127.0.0.1:PORT."
_ORCHESTRATION_FIX = "Run this from inside the platform's network, or look into the log of the Orchestration API's start for 'ClaudeCode'."


async def ask_service(asking: Asking, address: str, instance_id: str, key: SecretStr | None | Missing) -> ServiceFacts:
    """Return what the service says.

    Args:
        asking: Asks.
        address: Where the service is.
        instance_id: The platform's instance.
        key: Its key as the vault has it.
    """
    instance = f"{address}/instances/{instance_id}"
    poll = f"{instance}/async-completions/doctor-{uuid.uuid4()}/status"
    what = f"the service at {address!r}"
    shown = key.get_secret_value() if isinstance(key, SecretStr) else ""

    async def get(url: str, headers: Mapping[str, str] | None = None) -> Answer | Missing:
        return await asking.fact(what, asking.get(url, headers), fix=_FIX)

    status = await get(f"{address}/status")
    is_ours = isinstance(status, Answer) and (status.content or {}).get("name") == SERVICE_ENDPOINT

    async def with_key(groups: int) -> Answer | Missing | None:
        if not is_ours or not _can_be_sent(shown):  # the key is shown to nobody else
            return None
        return await get(poll, {"X-API-KEY": shown, "X-USER-IDENTITY": _identity(groups)})

    async with asyncio.TaskGroup() as tasks:
        states = [tasks.create_task(get(f"{instance}/status")) for _ in range(REPLICA_ASKS)]
        without = tasks.create_task(get(poll, {"X-USER-IDENTITY": _identity(1)}))
        small, big = tasks.create_task(with_key(1)), tasks.create_task(with_key(GROUPS))
    found = [state.result() for state in states]
    missing = next((one for one in found if isinstance(one, Missing)), None)
    replicas: list[Mapping[str, Any]] = [one.content or {} for one in found if isinstance(one, Answer)]
    return ServiceFacts(
        address, status, found[0], missing or replicas, without.result(), with_key=small.result(), with_big_identity=big.result()
    )


async def ask_orchestration(asking: Asking, url: object, instance_id: str) -> Answer | Missing:
    """Return what the Orchestration API says of its orchestrators.

    Args:
        asking: Asks.
        url: Its address as its endpoint configuration has it; None where there is none.
        instance_id: The platform's instance.
    """
    what = "whether the Orchestration API knows the service"
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return Missing(what, "There is no endpoint configuration 'OrchestrationAPI' with its address.", _ORCHESTRATION_FIX)
    headers = {"X-USER-IDENTITY": _identity(1)}  # without one it fails as soon as it knows an external orchestrator
    found = await asking.fact(what, asking.get(f"{url.rstrip('/')}/instances/{instance_id}/status", headers), fix=_ORCHESTRATION_FIX)
    if isinstance(found, Answer) and not isinstance((found.content or {}).get("subordinate_services"), list):
        return Missing(what, f"Its own status does not tell its orchestrators (status {found.status}).", _ORCHESTRATION_FIX)
    return found


def _identity(groups: int) -> str:
    """A user who exists nowhere."""
    ids = [str(uuid.UUID(bytes=secrets.token_bytes(16))) for _ in range(groups)]
    who = {"name": "doctor", "user_name": "doctor@example.invalid", "user_id": str(uuid.UUID(int=0)), "upn": "doctor@example.invalid"}
    return json.dumps({**who, "associated_with_access_token": False, "group_ids": ids}, separators=(",", ":"))


def _can_be_sent(key: str) -> bool:
    return bool(key) and key.isascii() and key.isprintable() and key == key.strip()
