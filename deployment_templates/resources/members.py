"""What an installation consists of: its members, each with the place it has on the platform, in the order of a first installation."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from deployment_templates.resources.authorization import RoleAssignment
from deployment_templates.resources.configuration import AppConfigurationEntry
from deployment_templates.resources.models import Resource
from deployment_templates.resources.references import REFERENCES, ReferenceEntry, ReferenceType
from deployment_templates.values import TOOLS, WORKFLOWS

SYSTEM = "SYSTEM"
NEVER = "0001-01-01T00:00:00+00:00"
"""What the platform's own templates write for a time nobody knows."""


@dataclass(frozen=True, kw_only=True)
class NeededSecret:
    """A secret that must be in the key vault before an entry refers to it: services that read a reference to nothing do not start."""

    name: str
    """Its name in the vault."""

    key: str
    """The configuration key that refers to it."""

    why: str
    """What it is for."""

    generated: bool
    """Whether any long random text will do, so that it can be made where there is none; others come from the operator."""

    @property
    def kind(self) -> Literal["secret"]:
        """What kind of member this is."""
        return "secret"


@dataclass(frozen=True, kw_only=True)
class PlatformResource:
    """A resource of a resource provider."""

    path: str
    """Provider and type, such as `FoundationaLLM.Agent/agents`."""

    resource: Resource
    """The resource."""

    reference_type: ReferenceType
    """Its kind in the provider's index."""

    why: str
    """What it is for."""

    @property
    def kind(self) -> Literal["resource", "seeded-resource"]:
        """`seeded-resource` where the Management API only reads: such a resource is a blob and a line in the index."""
        return "seeded-resource" if self.path in (WORKFLOWS, TOOLS) else "resource"

    @property
    def name(self) -> str:
        """The resource's name."""
        return self.resource.name

    @property
    def provider(self) -> str:
        """The resource provider, such as `FoundationaLLM.Agent`."""
        return self.path.partition("/")[0]

    @property
    def management_path(self) -> str:
        """Path below `/instances/{id}/providers/` of the Management API."""
        return f"{self.path}/{self.name}"

    @property
    def body(self) -> dict[str, Any]:
        """The resource as the Management API takes it: `type` first, without what the platform writes itself."""
        return self.resource.body()

    @property
    def blob_path(self) -> str:
        """The resource's file in the container of resources."""
        return f"{self.provider}/{self.name}.json"

    @property
    def blob_body(self) -> dict[str, Any]:
        """The resource as a file: `type` first, with the stamps that the platform would have written."""
        stamps = {"created_on": NEVER, "updated_on": NEVER, "created_by": SYSTEM, "updated_by": SYSTEM, "deleted": False}
        return self.resource.model_copy(update={**stamps, "expiration_date": None}).body()

    @property
    def reference_path(self) -> str:
        """The provider's index in the container of resources; it is merged into, never replaced."""
        return f"{self.provider}/{REFERENCES}"

    @property
    def reference(self) -> ReferenceEntry:
        """The resource's line in that index."""
        return ReferenceEntry(Name=self.name, Filename=f"/{self.blob_path}", Type=self.reference_type, Deleted=False)


@dataclass(frozen=True, kw_only=True)
class RoleMember:
    """A role assignment, under the same name at every installation."""

    assignment: RoleAssignment
    """The assignment."""

    label: str
    """A short name, for tokens and plans: `agentReader`."""

    @property
    def kind(self) -> Literal["role-assignment"]:
        """What kind of member this is."""
        return "role-assignment"

    @property
    def name(self) -> str:
        """Its identifier."""
        return self.assignment.name

    @property
    def why(self) -> str:
        """What it is for."""
        return self.assignment.description or ""

    @property
    def management_path(self) -> str:
        """Path below `/instances/{id}/providers/` of the Management API; one that exists is answered with 409."""
        return f"FoundationaLLM.Authorization/roleAssignments/{self.name}"

    @property
    def body(self) -> dict[str, Any]:
        """The assignment as the Management API takes it, `type` first."""
        return self.assignment.body()


@dataclass(frozen=True, kw_only=True)
class CacheReset:
    """A command after which every service reads a provider's resources again; seeded ones are invisible before it."""

    provider: str
    """The provider it is sent to."""

    why: str
    """What it is for."""

    @property
    def kind(self) -> Literal["cache-reset"]:
        """What kind of member this is."""
        return "cache-reset"

    @property
    def management_path(self) -> str:
        """Path below `/instances/{id}/providers/` of the Management API."""
        return f"{self.provider}/management/trigger-command"

    @property
    def body(self) -> dict[str, Any]:
        """The command; it needs the role *Resource Providers Administrator*."""
        return {"type": "send-event", "target_service_name": None, "event_type": "FoundationaLLM.ResourceProvider.Cache.ResetCommand"}


@dataclass(frozen=True, kw_only=True)
class ServiceReady:
    """The orchestration service must be up before the platform is told of it."""

    url: str
    """Address whose `/status` must answer 200."""

    why: str
    """What it is for."""

    @property
    def kind(self) -> Literal["service-ready"]:
        """What kind of member this is."""
        return "service-ready"


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A service of the platform that reads something only when it starts."""

    service: str
    """The service, as the platform calls it."""

    why: str
    """What it would otherwise not know."""

    @property
    def kind(self) -> Literal["restart"]:
        """What kind of member this is."""
        return "restart"


Member = NeededSecret | AppConfigurationEntry | ServiceReady | PlatformResource | CacheReset | RoleMember | Restart


@dataclass(frozen=True, kw_only=True)
class ResourceSet:
    """All that makes up one installation. Holds no secret."""

    instance_id: str
    """The platform's instance."""

    secrets: tuple[NeededSecret, ...]
    """What must be in the key vault."""

    configuration: tuple[AppConfigurationEntry, ...]
    """Entries the services need before anything else."""

    service: ServiceReady
    """The service itself."""

    endpoints: tuple[PlatformResource, ...]
    """API endpoint configurations: our service's, and the model provider's."""

    models: tuple[PlatformResource, ...]
    """AI models, the agent's main one first."""

    prompts: tuple[PlatformResource, ...]
    """Prompts."""

    seeded: tuple[PlatformResource, ...]
    """Workflow and tool."""

    agents: tuple[PlatformResource, ...]
    """The agent."""

    roles: tuple[RoleMember, ...]
    """Who may do what."""

    portal: tuple[AppConfigurationEntry, ...]
    """Entries that show the agent to users."""

    restarts: tuple[Restart, ...]
    """What must be started again at the end."""

    @cached_property
    def resources(self) -> tuple[PlatformResource, ...]:
        """The resources of all providers."""
        return (*self.endpoints, *self.models, *self.prompts, *self.seeded, *self.agents)

    def steps(self) -> Iterator[Member]:
        """Yield all members in the order of a first installation (contract: portals and deployment §9); removal goes backwards."""
        yield from self.secrets
        yield from self.configuration
        yield self.service
        yield from (*self.endpoints, *self.models, *self.prompts, *self.seeded)
        yield CacheReset(provider="FoundationaLLM.Agent", why="lets every service see the workflow and the tool")
        yield from self.agents
        yield from self.roles
        yield from self.portal
        yield from self.restarts
