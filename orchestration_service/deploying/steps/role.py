"""A role assignment: there as soon as the same principal has the same role on the same scope, whatever the assignment is called."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployment_templates.resources.members import RoleMember
from orchestration_service.deploying.errors import Refused
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.management_api import ManagementApi
from orchestration_service.deploying.record import Record

_SAME = ("principal_id", "role_definition_id", "scope")


@dataclass(frozen=True)
class RoleStep:
    """One role assignment."""

    api: ManagementApi
    """Who gives roles."""

    record: Record
    """What was written before."""

    member: RoleMember
    """What it is to be."""

    @property
    def what(self) -> str:
        """What it is about, in words."""
        return f"role {self.member.label}"

    async def inspect(self) -> Finding:
        """Compare what is there with what is wanted."""
        note = f"{self.member.why} {self.member.assignment.principal_type} {self.member.assignment.principal_id}."
        return Finding(self.what, "create", note=note) if await self._there() is None else Finding(self.what, "nothing")

    async def apply(self) -> Finding:
        """Write the difference."""
        finding = await self.inspect()
        if not finding.acts:
            return finding
        await self.record.intend(self.what, {})
        if not await self.api.assign(self.member.body) and await self._there() is None:
            raise Refused(
                f"The {self.what} exists already, says the platform, and does not show it. Give yourself the right to see it.", 409
            )
        return finding

    async def inspect_removal(self) -> Finding:
        """Tell whether it can be taken away."""
        if self.record.written(self.what) is None:
            there = await self._there() is not None
            return Finding(self.what, "nothing", note="kept: it was there before" if there else "")
        return Finding(self.what, "remove")

    async def remove(self) -> Finding:
        """Take it away."""
        finding = await self.inspect_removal()
        if finding.acts:
            there = await self._there()
            if there is not None and there.get("name") == self.member.name:
                await self.api.unassign(self.member.name)
            await self.record.forget(self.what)
        return finding

    async def _there(self) -> Mapping[str, Any] | None:
        wanted = self.member.body
        for one in await self.api.role_assignments(wanted["scope"]):
            if all(str(one.get(field)).casefold() == wanted[field].casefold() for field in _SAME):
                return one
        return None
