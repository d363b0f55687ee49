"""Who may do what: roles of the platform, and role assignments whose names are always the same for the same thing.

A name that can be made again from instance, role, principal and scope is what makes installing twice harmless: the platform refuses an
existing one with 409, and `remove` finds it without having kept anything.
"""

import uuid
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from deployment_templates.values import AUTHORIZATION, ROLE_ASSIGNMENTS, Guid, PlatformObject

RoleName = Literal["Reader", "Contributor"]

ROLES: Mapping[RoleName, str] = {
    "Reader": "00a53e72-f66e-4c03-8f81-7e885fd2eb35",
    "Contributor": "a9f0020f-6e3a-49bf-8d1d-35fd53058edf",
}
"""The roles this project hands out, and their fixed identifiers (contract: portals and deployment §1.6)."""

ALL_AGENTS_GROUP = "5bb493a2-5909-4771-93ba-d83b7b5a1de9"
"""The virtual group of all holders of agent access tokens; the platform lets it read every workflow and tool."""

NAMESPACE = uuid.UUID("0f6f5f0e-52f5-5d3c-9f5b-2f1f1c9d9c11")
"""From which this project's names are made; made once, and never to be changed."""


class RoleAssignment(PlatformObject):
    """One role for one principal on one scope."""

    type: Literal["FoundationaLLM.Authorization/roleAssignments"]
    """Always the same."""
    name: Guid
    """The assignment's own identifier."""
    object_id: str | None = Field(default=None, pattern=r"^/providers/FoundationaLLM\.Authorization/roleAssignments/[0-9a-fA-F-]{36}$")
    """Its address."""
    description: str | None = None
    """What it is for."""
    role_definition_id: str = Field(pattern=r"^/providers/FoundationaLLM\.Authorization/roleDefinitions/[0-9a-fA-F-]{36}$")
    """The role."""
    principal_id: Guid
    """Who gets it."""
    principal_type: Literal["User", "Group", "ServicePrincipal"]
    """What kind of principal that is."""
    scope: str = Field(pattern=r"^/instances/[0-9a-fA-F-]{36}(?:/providers/FoundationaLLM\.[A-Za-z]+/[A-Za-z]+/[A-Za-z][\w-]*)?$")
    """Where it holds."""
    created_on: str | None = None
    """When it was made; only in the store's own file."""
    updated_on: str | None = None
    """When it was last changed; only in the store's own file."""
    created_by: str | None = None
    """Who made it; only in the store's own file."""
    updated_by: str | None = None
    """Who last changed it; only in the store's own file."""

    @model_validator(mode="after")
    def _is_where_its_name_says(self) -> Self:
        if self.object_id is not None and not self.object_id.endswith(f"/{self.name}"):
            raise ValueError(f"the object id {self.object_id!r} does not end with the name {self.name!r}")
        return self


class RoleAssignmentStore(PlatformObject):
    """The authorization store's file of an instance, or a part of it."""

    instance_id: Guid
    """Whose file it is."""
    role_assignments: tuple[RoleAssignment, ...]
    """The assignments in it."""


def stable_guid(*parts: str) -> str:
    """Return the identifier that always stands for these parts, compared without regard to case."""
    return str(uuid.uuid5(NAMESPACE, "\n".join(part.casefold() for part in parts)))


def assign(role: RoleName, *, instance_id: str, principal_id: str, scope: str, description: str) -> RoleAssignment:
    """Return the assignment of a role to a group; the same one for the same role, group and scope."""
    name = stable_guid("role-assignment", instance_id, ROLES[role], principal_id, scope)
    return RoleAssignment(
        type="FoundationaLLM.Authorization/roleAssignments",
        name=name,
        object_id=f"/providers/{ROLE_ASSIGNMENTS}/{name}",
        description=description,
        role_definition_id=f"/providers/{AUTHORIZATION}/roleDefinitions/{ROLES[role]}",
        principal_id=principal_id,
        principal_type="Group",
        scope=scope,
    )
