"""A resource the Management API writes: an endpoint, a model, a prompt, the agent.

Removing takes more than a DELETE. The platform only marks a deleted resource and keeps its name taken until it is purged; endpoint
configurations cannot be purged at all, so their file and their line in the list are taken out of the container. And whoever makes a
resource gets the role 'Owner' on it, an agent's own group the role 'Reader': what nobody planned is taken away with the resource.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployment_templates.resources.authorization import ROLES
from deployment_templates.resources.members import PlatformResource
from deployment_templates.values import ENDPOINTS
from orchestration_service.deploying.errors import NameTaken
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.leaves import changed_since, differences, digests, merged
from orchestration_service.deploying.management_api import ManagementApi
from orchestration_service.deploying.record import Record
from orchestration_service.deploying.reference_blobs import ReferenceBlobs

OWNER = "1301f8d4-3bea-4880-945f-315dbd2ddb46"
_KINDS: Mapping[str, str] = {"apiEndpointConfigurations": "endpoint", "aiModels": "model", "prompts": "prompt", "agents": "agent"}


@dataclass(frozen=True)
class ResourceStep:
    """One resource."""

    api: ManagementApi
    """Who writes it."""

    blobs: ReferenceBlobs
    """Where the platform keeps it."""

    record: Record
    """What was written before."""

    member: PlatformResource
    """What it is to be."""

    overwrite: bool
    """Whether what somebody else chose is replaced."""

    force: bool
    """Whether it is removed though somebody else has changed it."""

    @property
    def what(self) -> str:
        """What it is about, in words."""
        return f"{_KINDS[self.member.path.partition('/')[2]]} {self.member.name!r}"

    async def inspect(self) -> Finding:
        """Compare what is there with what is wanted."""
        there, is_deleted = await self._there()
        return self._compared(there, is_deleted)

    async def apply(self) -> Finding:
        """Write the difference."""
        there, is_deleted = await self._there()
        finding = self._compared(there, is_deleted)
        if not finding.acts:
            return finding
        if is_deleted:
            await self.api.read_again(self.member.path)
            await self._purge(is_known=True)
        after = self.member.body if there is None else merged(there, finding.leaves)
        kept = {".".join(leaf.path) for leaf in finding.kept}
        ours = {path: known for path, known in digests(self.member.body).items() if path not in kept}
        await self.record.intend(self.what, ours, existed=there is not None)
        await self.api.upsert(self.member.management_path, after)
        await self.record.settle(self.what, ours, kept=kept)
        return finding

    async def inspect_removal(self) -> Finding:
        """Tell whether it can be taken away."""
        written = self.record.written(self.what)
        there, is_deleted = await self._there()
        if written is None or written.existed:
            return Finding(self.what, "nothing", note="kept: it was there before" if there else "", stays=there is not None)
        if there is None:
            return Finding(self.what, "remove", note="purge it" if is_deleted else "only traces of it are left")
        theirs = changed_since(there, written.leaves)
        if theirs and not self.force:
            return Finding(self.what, "nothing", kept=theirs, note="kept: somebody else has changed it; see --force", stays=True)
        return Finding(self.what, "remove")

    async def remove(self) -> Finding:
        """Take it away."""
        finding = await self.inspect_removal()
        if not finding.acts:
            await self.record.forget_taken_over(self.what)
            return finding
        there, is_deleted = await self._there()
        await self.api.read_again(self.member.path)
        if there is not None:
            await self.api.delete(self.member.management_path)
        await self._purge(is_known=there is not None or is_deleted)
        strangers = await self._take_roles(there)
        await self.record.forget(self.what)
        told = f"left: roles on it that others gave: {', '.join(strangers)}; see --force" if strangers else ""
        return Finding(self.what, finding.act, finding.leaves, finding.kept, told or finding.note)

    async def _there(self) -> tuple[dict[str, Any] | None, bool]:
        """The resource, and whether there is a deleted one of ours instead."""
        try:
            return await self.api.get(self.member.management_path), False
        except NameTaken:
            written = self.record.written(self.what)
            if written is None or written.existed:
                raise
            return None, True

    def _compared(self, there: dict[str, Any] | None, is_deleted: bool) -> Finding:
        if there is None:
            return Finding(self.what, "create", note="purges the deleted one first" if is_deleted else self.member.why)
        found = differences(there, self.member.body, self.record.digests(self.what))
        kept = () if self.overwrite else tuple(leaf for leaf in found if leaf.is_theirs)
        leaves = tuple(leaf for leaf in found if leaf not in kept)
        note = "kept: chosen by somebody else; see --overwrite" if kept else ""
        return Finding(self.what, "change" if leaves else "nothing", leaves, kept, note)

    async def _purge(self, *, is_known: bool) -> None:
        if self.member.path != ENDPOINTS:
            if is_known:
                await self.api.purge(self.member.management_path)
            return
        await self.blobs.strip(self.member.reference)
        if is_known:
            await self.api.reset_cache(self.member.provider)
        blob = await self.blobs.read(self.member.blob_path)
        if blob is not None:
            await self.blobs.delete(self.member.blob_path, blob.etag)

    async def _take_roles(self, agent: Mapping[str, Any] | None) -> Sequence[str]:
        """Take away the roles the platform gave by itself; return those that others gave."""
        scope = self.member.body["object_id"]
        group = str((agent or self.member.body).get("virtual_security_group_id"))
        left = []
        for one in await self.api.role_assignments(scope):
            if self.force or _is_automatic(one, group):
                await self.api.unassign(str(one["name"]))
            else:
                left.append(f"{one.get('description') or one['name']!r}")
        return left


def _is_automatic(assignment: Mapping[str, Any], group: str) -> bool:
    """Whether the platform gave a role by itself, when the resource was made."""
    role, said = str(assignment.get("role_definition_id", "")), str(assignment.get("description") or "")
    is_creators = role.endswith(OWNER) and said.startswith("Owner role for ")
    return is_creators or (role.endswith(ROLES["Reader"]) and assignment.get("principal_id") == group)
