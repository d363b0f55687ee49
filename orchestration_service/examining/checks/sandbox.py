"""The session pool: which one is used, and whether a turn can run in it (contract: portals §5.3, trap 19)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_client.sandboxes.health import health_differences
from deployment_templates.resources.configuration import CUSTOM_CONTAINERS, SESSION_LANGUAGE
from orchestration_service.examining.asking_pool import endpoints_of
from orchestration_service.examining.facts import Facts, Missing, known
from orchestration_service.examining.finding import Finding, Kind
from orchestration_service.remarks import OWN_SANDBOXES

LEAST_CPU = 0.5
"""Cores below which a turn is not carried; the same as a profile's."""
LEAST_MEMORY_GIB = 1.0
"""Memory below which a turn is not carried; the same as a profile's."""

NO_POOL = Kind(
    "pool-missing",
    "sandbox",
    "The platform's entry about pools has none in the slot that the service asks for.",
    "The Context API finds no endpoint and opens no code session: every turn fails when it begins.",
    "Set sandbox.pool_url in {profile} to the pool's management endpoint (az containerapp sessionpool show --query "
    "properties.poolManagementEndpoint), then: {apply}. Restart the Context API.",
)
BROKEN = Kind(
    "pool-entry-broken",
    "sandbox",
    "The platform's entry about pools is not the JSON it should be.",
    "The Context API cannot read it, neither for this agent nor for the Code Interpreter tool.",
    'Set {key} to {{"Endpoints": {{"Python": ["https://POOL"], "CSharp": []}}}} with the content type application/json.',
)
OTHER_SLOT = Kind(
    "pool-other-slot",
    "sandbox",
    "Our pool is in the slot of another language than the profile's.",
    "The service asks for the profile's slot, and gets another pool or none.",
    "Put {pool} into the slot {slot} of {key}: {apply}; or set sandbox.slot in {profile} to where it is. Restart the Context API.",
)
NOT_FIRST = Kind(
    "pool-not-first",
    "sandbox",
    "Another pool stands before ours in its slot.",
    "The platform uses the first endpoint of a slot and never another: turns run in a pool without our image, and fail.",
    "Put {pool} first in the slot {slot} of {key}: {apply}. Restart the Context API.",
)
CROWDED = Kind(
    "pool-crowded",
    "sandbox",
    "There are several pools in the slot, and the profile does not say which is ours.",
    "The platform uses the first endpoint of a slot and never another.",
    "Set sandbox.pool_url in {profile} to the pool with our image, then: {apply}",
)
LANGUAGE = Kind(
    "session-language",
    "sandbox",
    "The service asks for another slot than the profile's.",
    "It opens code sessions in the pool of another language, which does not have our image.",
    "az appconfig kv set --name STORE --key {key} --value {slot}, and restart the service.",
)
SMALL = Kind(
    "pool-small",
    "sandbox",
    "The pool's sessions are too small for a turn.",
    "The agent's program alone takes some 290 MB, and files in a sandbox are memory: with the 0.25 cores and 0.5 GiB that the "
    "platform ships "
    "with, turns are killed in the middle.",
    "az containerapp sessionpool update --name {name} --resource-group {group} --cpu {cpu} --memory {memory}Gi",
)
EGRESS = Kind(
    "pool-egress",
    "sandbox",
    "Sessions of the pool reach the network.",
    "What an agent runs, or is talked into running, can send files of users anywhere. Nothing of ours needs it: model calls go "
    "through the service.",
    "az containerapp sessionpool update --name {name} --resource-group {group} --network-status EgressDisabled",
)
EXECUTOR = Kind(
    "pool-caller-role",
    "sandbox",
    "Nobody may call the pool.",
    "The Context API (or the service, with sandboxes of its own) is answered 403, and no session opens.",
    'az role assignment create --role "Azure ContainerApps Session Executor" --scope {pool_id} --assignee-principal-type ServicePrincipal '
    "--assignee-object-id OBJECT-ID-OF-THE-CONTEXT-API",
)
NOT_OURS = Kind(
    "pool-image",
    "sandbox",
    "The pool runs another image than ours.",
    "Turns need the runner in our image; a sandbox without it only runs single pieces of code.",
    "Set the pool's image to claude-code-runner of this version: az containerapp sessionpool update --name NAME --resource-group "
    "GROUP --image "
    "REGISTRY/claude-code-runner:{version}",
)
SKEWED = Kind(
    "runner-differs",
    "sandbox",
    "The image in the pool is of another version than the service.",
    "Both ends share code. The service refuses such a sandbox before a turn, so that it does not fail in the middle of one.",
    "Build image and service from one checkout (./dev image; ./dev image --service) and update both; the pool with: az containerapp "
    "sessionpool update --name NAME --resource-group GROUP --image REGISTRY/claude-code-runner:{version}",
)
KINDS: Sequence[Kind] = (NO_POOL, BROKEN, OTHER_SLOT, NOT_FIRST, CROWDED, LANGUAGE, SMALL, EGRESS, EXECUTOR, NOT_OURS, SKEWED)


def slots(facts: Facts) -> Iterator[Finding]:
    """The platform leads to our pool, where the service takes its sandboxes from there."""
    if not _is_used(facts):
        return
    entry, wanted = facts.entry(CUSTOM_CONTAINERS), facts.profile.sandbox
    found = endpoints_of(entry.value) if entry is not None and entry.value.strip() else {}
    names = {**facts.commands, "key": CUSTOM_CONTAINERS, "slot": wanted.slot, "pool": wanted.pool_url or "the pool with our image"}
    if found is None:
        yield BROKEN.seen(f"The entry {CUSTOM_CONTAINERS!r} has no readable 'Endpoints'.", **names)
        return
    here = [url.rstrip("/") for url in found.get(wanted.slot, ())]
    if wanted.pool_url is None:
        if not here:
            yield NO_POOL.seen(f"The slot {wanted.slot!r} is empty.", **names)
        elif len(here) > 1:
            yield CROWDED.seen(f"The slot {wanted.slot!r} has {', '.join(here)}.", **names)
    elif wanted.pool_url not in here:
        others = [slot for slot, urls in found.items() if wanted.pool_url in [url.rstrip("/") for url in urls]]
        if others:
            yield OTHER_SLOT.seen(f"{wanted.pool_url!r} is in the slot {others[0]!r}, not in {wanted.slot!r}.", **names)
        else:
            yield NO_POOL.seen(f"{wanted.pool_url!r} is not in the slot {wanted.slot!r}.", **names)
    elif here[0] != wanted.pool_url:
        yield NOT_FIRST.seen(f"The first of the slot {wanted.slot!r} is {here[0]!r}.", **names)


def language(facts: Facts) -> Iterator[Finding]:
    """The service asks for the slot that our pool is in."""
    entry, slot = facts.entry(SESSION_LANGUAGE), facts.profile.sandbox.slot
    asked = entry.value if entry else "Python"
    if facts.profile.sandbox.pool_url is not None and asked != slot:
        yield LANGUAGE.seen(f"The service asks for {asked!r}, our pool is for {slot!r}.", **facts.commands, key=SESSION_LANGUAGE, slot=slot)


def size(facts: Facts) -> Iterator[Finding]:
    """A turn fits into a session, and nothing leaves it."""
    if facts.pool.address is None or not _is_used(facts):
        return
    pool, wanted = known(facts.pool.pool), facts.profile.sandbox
    name, group = _place(pool)
    names = {"name": name, "group": group, "cpu": f"{wanted.cpu:g}", "memory": f"{wanted.memory_gib:.1f}"}
    for cpu, memory in _sizes(pool):
        if cpu < LEAST_CPU or memory < LEAST_MEMORY_GIB:
            yield SMALL.seen(f"A session has {cpu:g} cores and {memory:g} GiB.", **names)
    status = (pool.get("sessionNetworkConfiguration") or {}).get("status")
    if status != "EgressDisabled":
        yield EGRESS.seen(f"The network status of the pool is {status!r}.", **names)


def callers(facts: Facts) -> Iterator[Finding]:
    """Somebody may call it."""
    if facts.pool.address is not None and _is_used(facts) and not known(facts.pool.callers):
        pool = facts.pool.pool
        pool_id = str(pool.get("id")) if isinstance(pool, Mapping) and pool.get("id") else "POOL-ID"
        yield EXECUTOR.seen("No principal has the role 'Azure ContainerApps Session Executor' on the pool.", pool_id=pool_id)


def image(facts: Facts) -> Iterator[Finding]:
    """Its image is ours, and of the same version as this."""
    if facts.pool.health is None or not _is_used(facts):
        return
    answer = known(facts.pool.health)
    said = answer.content if answer.status == 200 else None
    if said is None or "source_digest" not in said:
        yield NOT_OURS.seen(
            f"A sandbox in {facts.pool.address!r} does not say what it is (status {answer.status}).", version=facts.own_version
        )
    elif differences := health_differences(said, {"source_digest": facts.pool.own_digest}):
        found = f"A sandbox in {facts.pool.address!r} has the version {str(said.get('version'))[:40]!r}: {differences[0]}."
        yield SKEWED.seen(found, version=facts.own_version)


def _is_used(facts: Facts) -> bool:
    """Whether turns run in the pool of the profile or of the platform: a service with sandboxes of its own says so."""
    if facts.profile.sandbox.pool_url is not None or isinstance(facts.service.replicas, Missing):
        return True
    return not any(OWN_SANDBOXES in str(one.get("message") or "") for one in facts.service.replicas)


def _sizes(pool: Mapping[str, Any]) -> list[tuple[float, float]]:
    containers = (pool.get("customContainerTemplate") or {}).get("containers") or ()
    resources = [dict(one.get("resources") or {}) for one in containers if isinstance(one, dict)]
    return [(float(one.get("cpu") or 0), _gib(str(one.get("memory") or "0"))) for one in resources]


def _gib(text: str) -> float:
    amount = re.fullmatch(r"([0-9.]+)\s*(Gi|Mi|G|M)?", text.strip())
    if amount is None:
        return 0.0
    return float(amount[1]) / (1024 if (amount[2] or "Gi").startswith("M") else 1)


def _place(pool: Mapping[str, Any]) -> tuple[str, str]:
    parts = str(pool.get("id") or "").strip("/").split("/")
    return (parts[-1], parts[3]) if len(parts) > 4 else ("NAME", "GROUP")
