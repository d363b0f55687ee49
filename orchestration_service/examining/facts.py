"""What is known of an installation when it is judged. Nothing here asks anybody anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import SecretStr

from deployment_templates.profile import Profile
from deployment_templates.resources.members import PlatformResource, ResourceSet
from orchestration_service.deploying.configuration_store import Entry
from orchestration_service.examining.errors import NotKnown
from orchestration_service.examining.finding import Finding, commands_for

T = TypeVar("T")
Resource = Mapping[str, Any]
"""A resource as the platform keeps it."""

_OBJECT_ID = re.compile(r"/instances/[^/]+/providers/(?P<provider>FoundationaLLM\.[A-Za-z]+)/(?P<kind>[A-Za-z]+)/(?P<name>[\w-]+)\Z")


@dataclass(frozen=True)
class Missing:
    """A fact that could not be had."""

    what: str
    """What was asked for, in words; the same words for the same fact."""

    why: str
    """Why there was no answer."""

    fix: str
    """What to do to get one."""


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP."""

    status: int
    """Its status."""

    text: str
    """Its body, or the beginning of it."""

    ahead_seconds: float | None = None
    """By how much the clock there is ahead of the one here, from its `Date`; None where it told none."""

    @property
    def content(self) -> Mapping[str, Any] | None:
        """The JSON object in it, None where there is none."""
        try:
            found = json.loads(self.text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class ServiceFacts:
    """What the service said."""

    address: str
    """Where it was asked."""

    status: Answer | Missing
    """`/status`."""

    instance: Answer | Missing
    """`/instances/{id}/status`."""

    replicas: Sequence[Mapping[str, Any]] | Missing
    """What `/instances/{id}/status` said when it was asked several times over new connections."""

    without_key: Answer | Missing
    """A poll of a turn nobody has, without a key."""

    with_key: Answer | Missing | None
    """The same with the key in the vault; None where there is no key, or somebody else than the service to show it to."""

    with_big_identity: Answer | Missing | None
    """The same for a user of many groups."""


@dataclass(frozen=True)
class PoolFacts:
    """What is known of the session pool."""

    address: str | None
    """Its management endpoint, None where nothing names one."""

    health: Answer | Missing | None
    """What a sandbox in it says of itself; None where there is no pool."""

    pool: Mapping[str, Any] | Missing
    """Its properties as Azure has them."""

    callers: Sequence[str] | Missing
    """Principals with the role *Azure ContainerApps Session Executor* on it."""

    own_digest: str
    """Digest of the sources that service and sandbox must share, as they are here."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All of it."""

    profile: Profile
    """What should be."""

    wanted: ResourceSet
    """The same, as resources."""

    profile_path: str
    """File the profile is in, for commands."""

    own_version: str
    """Version of this project here."""

    entries: Mapping[str, Entry | None | Missing]
    """App Configuration, by key."""

    secrets: Mapping[str, SecretStr | None | Missing]
    """Key Vault, by name."""

    lists: Mapping[str, Sequence[Mapping[str, Any]] | Missing]
    """The lines of each provider's list of resources."""

    blobs: Mapping[str, str | None | Missing]
    """Texts of resources, by their path in the container."""

    listings: Mapping[str, Sequence[Mapping[str, Any]] | Missing]
    """What the Management API lists, by provider and type."""

    roles: Mapping[str, Sequence[Mapping[str, Any]] | Missing]
    """Role assignments, by scope."""

    service: ServiceFacts
    """What the service said."""

    orchestration: Answer | Missing
    """What the Orchestration API says of its orchestrators."""

    pool: PoolFacts
    """The session pool."""

    @property
    def commands(self) -> Mapping[str, str]:
        """The commands that put things right."""
        return {**commands_for(self.profile_path), "instance": self.profile.instance_id}

    def entry(self, key: str) -> Entry | None:
        """Return an entry of App Configuration, None when there is none."""
        return known(self.entries[key])

    def lines(self, provider: str) -> Sequence[Mapping[str, Any]]:
        """Return the lines of a provider's list."""
        return known(self.lists[provider])

    def is_listed(self, provider: str, name: str) -> bool:
        """Tell whether a provider's list has a resource that was not deleted."""
        return any(line.get("Name") == name and not line.get("Deleted") for line in self.lines(provider))

    def resource(self, path: str) -> Resource | None:
        """Return a resource by its path in the container, None when it is not there or no JSON object."""
        text = known(self.blobs[path]) if path in self.blobs else None
        return None if text is None else as_object(text)

    def wanted_resource(self, member: PlatformResource) -> Resource | None:
        """Return one of the installation's own resources as it is."""
        return self.resource(member.blob_path)

    def referred(self, object_id: str) -> Resource | None:
        """Return the resource that another one refers to."""
        path = path_of(object_id)
        return None if path is None else self.resource(path)

    @property
    def agent(self) -> Resource | None:
        """The agent."""
        return self.wanted_resource(self.wanted.agents[0])

    @property
    def endpoint(self) -> Resource | None:
        """The endpoint configuration of the service."""
        return self.wanted_resource(self.wanted.endpoints[0])


def known(fact: T | Missing) -> T:
    """Return a fact.

    Raises:
        NotKnown: It could not be had.
    """
    if isinstance(fact, Missing):
        raise NotKnown(fact.what, fact.why, fact.fix)
    return fact


def each(items: Iterable[T], judged: Callable[[T], Iterator[Finding]]) -> Iterator[Finding]:
    """Judge things one by one; a fact that is missing about one of them does not keep the others from being judged.

    Raises:
        NotKnown: One of them could not be judged; raised at the end, for the first.
    """
    unknown: NotKnown | None = None
    for item in items:
        try:
            yield from judged(item)
        except NotKnown as error:
            unknown = unknown or error
    if unknown is not None:
        raise unknown


def path_of(object_id: str) -> str | None:
    """Return the path in the container of a resource that another one refers to."""
    parts = _OBJECT_ID.match(object_id)
    return f"{parts['provider']}/{parts['name']}.json" if parts else None


def as_object(text: str) -> Resource | None:
    """Return the JSON object in a text, None where there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def uses_of(part: Mapping[str, Any] | None) -> Mapping[str, str]:
    """Return what a workflow or a tool uses: the object id of each resource, with its role or nothing."""
    uses = (part or {}).get("resource_object_ids")
    found: dict[str, str] = {}
    for key, use in (uses if isinstance(uses, dict) else {}).items():
        properties = (use.get("properties") if isinstance(use, dict) else None) or {}
        found[str(key)] = str(properties.get("object_role") or "")
    return found


def tools_of(agent: Resource | None) -> Sequence[Mapping[str, Any]]:
    """Return the tools of an agent."""
    tools = (agent or {}).get("tools")
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
