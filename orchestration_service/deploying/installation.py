"""Opens the places a profile names and makes the steps of its deployment."""

import importlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio.to_thread
from azure.core.credentials_async import AsyncTokenCredential

from context_client.embedded.azure_settings import is_on_this_machine
from deployment_templates.profile import Profile
from deployment_templates.resources import CacheReset, NeededSecret, PlatformResource, ResourceSet, RoleMember, ServiceReady, build
from deployment_templates.resources.configuration import CUSTOM_CONTAINERS, FEATURED_AGENTS, KNOWLEDGE_EXTENSIONS, AppConfigurationEntry
from orchestration_service.deploying.configuration_store import AppConfigurationStore, open_configuration_store
from orchestration_service.deploying.deployment import Deployment
from orchestration_service.deploying.errors import ProfileRefused
from orchestration_service.deploying.finding import Step
from orchestration_service.deploying.identity import open_identity, trusted_certificates
from orchestration_service.deploying.management_api import PAUSES_SECONDS, ManagementApi, open_management_api
from orchestration_service.deploying.record import Record
from orchestration_service.deploying.reference_blobs import ReferenceBlobs, open_reference_blobs
from orchestration_service.deploying.steps.cache import CacheStep
from orchestration_service.deploying.steps.entry import EntryStep
from orchestration_service.deploying.steps.resource import ResourceStep
from orchestration_service.deploying.steps.role import RoleStep
from orchestration_service.deploying.steps.secret import SecretStep
from orchestration_service.deploying.steps.seeded import SeededStep
from orchestration_service.deploying.steps.service import ServiceStep
from orchestration_service.deploying.vault import VaultStore, open_vault

_READERS: Mapping[str, str] = {FEATURED_AGENTS: "CoreAPI", CUSTOM_CONTAINERS: "ContextAPI", KNOWLEDGE_EXTENSIONS: "ContextAPI"}
"""Which service of the platform reads an entry."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What an operator decides for one run."""

    overwrite: bool = False
    """What others chose is replaced by what the profile says."""

    force: bool = False
    """What others have changed is removed all the same."""

    skip_service: bool = False
    """The service is not looked at."""


@dataclass(frozen=True)
class Places:
    """Everything a deployment writes to, open. Made by `open_places`."""

    api: ManagementApi
    """The platform's Management API."""

    store: AppConfigurationStore
    """Its App Configuration."""

    vault: VaultStore
    """Its Key Vault."""

    blobs: ReferenceBlobs
    """Its container of resources."""

    trusted: str | bool
    """Certificates to trust."""

    pauses_seconds: Sequence[float]
    """Waits between tries."""


@asynccontextmanager
async def open_places(
    profile: Profile,
    *,
    credential: AsyncTokenCredential | None = None,
    blob_key: str | None = None,
    pauses_seconds: Sequence[float] = PAUSES_SECONDS,
) -> AsyncIterator[Places]:
    """Open everything a profile names; nothing is asked of anybody yet.

    Args:
        profile: Of the installation.
        credential: Who asks; by default whoever runs this.
        blob_key: Key of the storage account, for an emulator, which knows no identities.
        pauses_seconds: Waits between tries.

    Raises:
        ProfileRefused: An address is missing, or is not encrypted.
    """
    addresses = _addresses(profile)
    trusted = trusted_certificates()
    importlib.import_module("aiohttp")  # the clients' transport, which they import only when they connect
    async with AsyncExitStack() as stack:
        who = credential if credential is not None else await stack.enter_async_context(open_identity())
        api = open_management_api(
            addresses["management_url"],
            profile.instance_id,
            who,
            scope=profile.platform.management_scope,
            trusted=trusted,
            pauses_seconds=pauses_seconds,
        )
        blobs = open_reference_blobs(addresses["storage_url"], profile.platform.storage_container, blob_key or who, trusted=trusted)
        yield Places(
            await stack.enter_async_context(api),
            await stack.enter_async_context(open_configuration_store(addresses["app_configuration_url"], who, trusted=trusted)),
            await stack.enter_async_context(open_vault(addresses["key_vault_url"], who, trusted=trusted)),
            await stack.enter_async_context(blobs),
            trusted,
            pauses_seconds,
        )


async def make_deployment(profile: Profile, places: Places, choices: Choices, environment: Mapping[str, str]) -> Deployment:
    """Return the deployment of a profile.

    Args:
        profile: Of the installation.
        places: Where it is installed.
        choices: The operator's.
        environment: Variables that secrets come from.
    """
    wanted, record = await anyio.to_thread.run_sync(build, profile), Record(places.blobs)
    steps = tuple(_steps(wanted, places, record, choices, environment))
    return Deployment(profile.instance_id, places.store, record, steps, _needs(wanted, steps), _restarts(wanted))


def variable_of(key: str) -> str:
    """Return the variable a secret's value comes from, by its configuration key: `DEPLOY_ANTHROPIC_APIKEY`."""
    *_, endpoint, _section, part = key.split(":")
    return f"DEPLOY_{endpoint}_{part}".upper()


def _steps(wanted: ResourceSet, places: Places, record: Record, choices: Choices, environment: Mapping[str, str]) -> Iterator[Step]:
    for member in wanted.steps():
        if isinstance(member, NeededSecret):
            variable = variable_of(member.key)
            yield SecretStep(places.vault, record, member.name, variable, environment, member.generated, choices.overwrite)
        elif isinstance(member, AppConfigurationEntry):
            yield EntryStep(places.store, record, member, places.vault.address, choices.overwrite, choices.force)
        elif isinstance(member, ServiceReady):
            yield ServiceStep(member.url, places.trusted, choices.skip_service, places.pauses_seconds)
        elif isinstance(member, CacheReset):
            seeded = [one for one in wanted.seeded if one.provider == member.provider]
            yield CacheStep(places.api, places.blobs, member, seeded)
        elif isinstance(member, RoleMember):
            yield RoleStep(places.api, record, member)
        elif isinstance(member, PlatformResource):
            kind = SeededStep if member.kind == "seeded-resource" else ResourceStep
            yield kind(places.api, places.blobs, record, member, choices.overwrite, choices.force)


def _restarts(wanted: ResourceSet) -> Sequence[str]:
    """What must be restarted, one line each; entries that are written here, and not through the Management API, are nobody's news."""
    entries = {entry.key for entry in (*wanted.configuration, *wanted.portal)}
    readers = [f"{service}: it reads {key} when it starts" for key, service in _READERS.items() if key in entries]
    return [*(f"{one.service}: {one.why}" for one in wanted.restarts), *readers]


def _needs(wanted: ResourceSet, steps: Sequence[Step]) -> Mapping[str, frozenset[str]]:
    """An agent needs everything; a model needs its endpoint and the endpoints' keys; an endpoint needs the keys."""
    keys = frozenset(step.what for step in steps if isinstance(step, SecretStep | EntryStep))
    everything = frozenset(step.what for step in steps)
    found: dict[str, frozenset[str]] = {}
    for step in steps:
        if isinstance(step, ResourceStep) and step.member in wanted.agents:
            found[step.what] = everything - {step.what}
        elif isinstance(step, ResourceStep) and step.member in wanted.endpoints:
            found[step.what] = keys
        elif isinstance(step, ResourceStep) and step.member in wanted.models:
            endpoints = (one.what for one in steps if isinstance(one, ResourceStep) and one.member in wanted.endpoints)
            found[step.what] = keys.union(endpoints)
    return found


def _addresses(profile: Profile) -> Mapping[str, str]:
    names = ("management_url", "app_configuration_url", "key_vault_url", "storage_url")
    given = {name: getattr(profile.platform, name) for name in names}
    if missing := [name for name, address in given.items() if not address]:
        raise ProfileRefused(f"The profile does not say where to install: set {', '.join(missing)} below [platform].")
    for name, address in given.items():
        if urlsplit(address).scheme != "https" and not is_on_this_machine(address):
            raise ProfileRefused(f"platform.{name} is {address!r}, which is not encrypted: it must begin with https://.")
    return given
