"""Gathers everything there is to know of an installation, at once and without changing anything."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import anyio.to_thread

from deployment_templates.profile import Profile
from deployment_templates.resources import build
from deployment_templates.resources.configuration import CUSTOM_CONTAINERS, FEATURED_AGENTS, KNOWLEDGE_EXTENSIONS, SESSION_LANGUAGE
from deployment_templates.resources.members import ResourceSet
from deployment_templates.resources.references import REFERENCES
from deployment_templates.values import AGENTS, CONFIGURATION, TOOLS, WORKFLOWS
from orchestration_service.deploying.deployment import INSTANCE_KEY
from orchestration_service.deploying.errors import WrongInstance
from orchestration_service.deploying.reference_blobs import ReferenceBlobs
from orchestration_service.deploying.reference_lists import parsed
from orchestration_service.examining.asking import Asking, open_asking
from orchestration_service.examining.asking_pool import ask_pool
from orchestration_service.examining.asking_service import ask_orchestration, ask_service
from orchestration_service.examining.facts import Facts, Missing, as_object, path_of, tools_of, uses_of
from orchestration_service.examining.sources import Asked, Sources
from orchestration_service.platform_keys import is_model_key
from orchestration_service.version import service_version

T = TypeVar("T")

OTHER_ENTRIES: Sequence[str] = (CUSTOM_CONTAINERS, FEATURED_AGENTS, KNOWLEDGE_EXTENSIONS, SESSION_LANGUAGE)
"""Entries that matter whether or not this installation writes them."""
LISTED: Sequence[str] = (AGENTS, WORKFLOWS, TOOLS)
"""What the Management API is asked to list: what was written past it shows here or does not."""
_ENTRY_FIX = "Give whoever runs this the role 'App Configuration Data Reader' on the store, and let the store be reached from here."
_VAULT_FIX = "Give whoever runs this the role 'Key Vault Secrets User' on the vault, and let the vault be reached from here."
_BLOB_FIX = "Give whoever runs this the role 'Storage Blob Data Reader' on the storage account, and let the account be reached from here."
_API_FIX = "Sign in with 'az login --scope api://FoundationaLLM-Management/.default' as somebody with the platform's role 'Reader'."
_ROUNDS = 3  # an agent leads to models, a model to its endpoint


async def gather(sources: Sources, profile: Profile, asked: Asked, *, profile_path: str) -> Facts:
    """Return what is known of the installation that a profile describes.

    Args:
        sources: Whom to ask.
        profile: Of the installation.
        asked: What the operator says beside the profile.
        profile_path: File the profile is in.

    Raises:
        WrongInstance: The places belong to another installation than the profile.
    """
    wanted = await anyio.to_thread.run_sync(build, profile)
    async with open_asking(sources.places.trusted) as asking:
        gatherer = _Gatherer(sources, asking, profile, wanted)
        entries = await gatherer.entries()
        async with asyncio.TaskGroup() as tasks:
            secrets = tasks.create_task(gatherer.secrets())
            lists = tasks.create_task(gatherer.lists())
            blobs = tasks.create_task(gatherer.blobs())
            listings = tasks.create_task(gatherer.listings())
            roles = tasks.create_task(gatherer.roles())
            pool = tasks.create_task(ask_pool(asking, sources, profile, asked, entries))
            service = tasks.create_task(_service(gatherer, secrets, asked))
            orchestration = tasks.create_task(_orchestration(gatherer, blobs))
    entries = {**entries, **await gatherer.model_entries(blobs.result(), frozenset(entries))}
    return Facts(
        profile=profile,
        wanted=wanted,
        profile_path=profile_path,
        own_version=service_version(),
        entries=entries,
        secrets=secrets.result(),
        lists=lists.result(),
        blobs=blobs.result(),
        listings=listings.result(),
        roles=roles.result(),
        service=service.result(),
        orchestration=orchestration.result(),
        pool=pool.result(),
    )


class _Gatherer:
    """Asks the four places of a deployment."""

    def __init__(self, sources: Sources, asking: Asking, profile: Profile, wanted: ResourceSet) -> None:
        self.places = sources.places
        self.asking = asking
        self.profile = profile
        self.wanted = wanted

    async def entries(self) -> Mapping[str, Any]:
        """Return what App Configuration holds, by key; first of all whether it is the right one."""
        keys = {entry.key for entry in (*self.wanted.configuration, *self.wanted.portal)} | {*OTHER_ENTRIES, INSTANCE_KEY}
        found = await self._each(sorted(keys), lambda key: (f"the entry {key!r}", self.places.store.get(key), _ENTRY_FIX))
        there, instance = found[INSTANCE_KEY], self.profile.instance_id
        if not isinstance(there, Missing) and (there is None or there.value.casefold() != instance.casefold()):
            owner = f"the instance {there.value!r}" if there else "no instance"
            raise WrongInstance(
                f"The App Configuration at {self.places.store.address!r} belongs to {owner}, the profile to {instance!r} "
                f"({INSTANCE_KEY}). Correct instance_id or [platform] in the profile."
            )
        return found

    async def model_entries(self, blobs: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
        """Return the entries that endpoints of models name as their keys, apart from those that are known."""
        resources = [as_object(text) or {} for text in blobs.values() if isinstance(text, str)]
        keys = {str(value) for one in resources for value in dict(one.get("authentication_parameters") or {}).values()}
        named = sorted(key for key in keys - known if is_model_key(key))
        return await self._each(named, lambda key: (f"the entry {key!r}", self.places.store.get(key), _ENTRY_FIX))

    async def secrets(self) -> Mapping[str, Any]:
        """Return what the vault holds, by name."""
        names = [secret.name for secret in self.wanted.secrets]
        return await self._each(names, lambda name: (f"the secret {name!r}", self.places.vault.get(name), _VAULT_FIX))

    async def lists(self) -> Mapping[str, Any]:
        """Return the lines of each provider's list."""
        providers = sorted({member.provider for member in self.wanted.resources})
        return await self._each(providers, lambda one: (f"the list of {one}", _lines(self.places.blobs, f"{one}/{REFERENCES}"), _BLOB_FIX))

    async def blobs(self) -> Mapping[str, Any]:
        """Return our own resources and those they lead to, by path."""
        wanted = [member.blob_path for member in self.wanted.resources]
        found: dict[str, Any] = {}
        more: set[str] = {*wanted, f"{CONFIGURATION}/OrchestrationAPI.json"}
        for _ in range(_ROUNDS):
            found |= await self._each(sorted(more), lambda path: (f"the blob {path!r}", _text(self.places.blobs, path), _BLOB_FIX))
            more = {path for text in found.values() if isinstance(text, str) for path in _leads_to(text)} - found.keys()
        return found

    async def listings(self) -> Mapping[str, Any]:
        """Return what the Management API lists."""
        return await self._each(list(LISTED), lambda path: (listing_of(path), self.places.api.list(path), _API_FIX))

    async def roles(self) -> Mapping[str, Any]:
        """Return who has roles where ours are needed."""
        scopes = sorted({f"/instances/{self.profile.instance_id}", *(role.assignment.scope for role in self.wanted.roles)})
        return await self._each(scopes, lambda scope: (f"the roles on {scope!r}", self.places.api.role_assignments(scope), _API_FIX))

    async def _each(self, names: Iterable[str], how: Callable[[str], tuple[str, Awaitable[T], str]]) -> dict[str, T | Missing]:
        async with asyncio.TaskGroup() as tasks:
            asked = {name: tasks.create_task(self._fact(*how(name))) for name in names}
        return {name: task.result() for name, task in asked.items()}

    async def _fact(self, what: str, asked: Awaitable[T], fix: str) -> T | Missing:
        return await self.asking.fact(what, asked, fix=fix)


def listing_of(path: str) -> str:
    """Return what the listing of a provider's type is called as a fact."""
    return f"the Management API's list of {path}"


async def _service(gatherer: _Gatherer, secrets: "asyncio.Task[Mapping[str, Any]]", asked: Asked) -> Any:
    key = (await secrets).get(gatherer.wanted.secrets[0].name)
    address = asked.service_url or gatherer.profile.service.url
    return await ask_service(gatherer.asking, address.rstrip("/"), gatherer.profile.instance_id, key)


async def _orchestration(gatherer: _Gatherer, blobs: "asyncio.Task[Mapping[str, Any]]") -> Any:
    found = (await blobs).get(f"{CONFIGURATION}/OrchestrationAPI.json")
    if isinstance(found, Missing):
        return found
    url = (as_object(found) or {}).get("url") if found else None
    return await ask_orchestration(gatherer.asking, url, gatherer.profile.instance_id)


async def _lines(blobs: ReferenceBlobs, name: str) -> Sequence[Mapping[str, Any]]:
    blob = await blobs.read(name)
    return list(parsed(None if blob is None else blob.content.decode("utf-8-sig", "replace"), name=name)["ResourceReferences"])


async def _text(blobs: ReferenceBlobs, path: str) -> str | None:
    blob = await blobs.read(path)
    return None if blob is None else blob.content.decode("utf-8-sig", "replace")


def _leads_to(text: str) -> Iterable[str]:
    """The resources that one refers to and that turns need: models, prompts, and the endpoints of models."""
    resource = as_object(text) or {}
    workflow = resource.get("workflow")
    parts = [workflow if isinstance(workflow, dict) else None, *tools_of(resource)]
    named = [*(name for part in parts for name in uses_of(part)), str(resource.get("endpoint_object_id") or "")]
    kept = ("/aiModels/", "/prompts/", "/apiEndpointConfigurations/", "/workflows/")
    return [path for name in named if any(kind in name for kind in kept) and (path := path_of(name))]
