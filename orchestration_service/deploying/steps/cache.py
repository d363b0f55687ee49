"""The platform's memory of what was written past it: it must be made to look again, and only when it has not."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from deployment_templates.resources.members import CacheReset, PlatformResource
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.leaves import leaves_of
from orchestration_service.deploying.management_api import ManagementApi
from orchestration_service.deploying.reference_blobs import ReferenceBlobs


@dataclass(frozen=True)
class CacheStep:
    """The command, sent when the listing shows something else than the blobs."""

    api: ManagementApi
    """Who remembers."""

    blobs: ReferenceBlobs
    """What is there."""

    member: CacheReset
    """What is to be reset."""

    seeded: Sequence[PlatformResource]
    """What was written past the API."""

    @property
    def what(self) -> str:
        """What it is about, in words."""
        return f"memory of {self.member.provider}"

    async def inspect(self) -> Finding:
        """Compare what is there with what is wanted."""
        stale = [one.name for one in self.seeded if not await self._is_shown(one)]
        if not stale:
            return Finding(self.what, "nothing")
        return Finding(self.what, "run", note=f"the platform does not show {', '.join(stale)} yet")

    async def apply(self) -> Finding:
        """Write the difference."""
        finding = await self.inspect()
        if finding.acts:
            await self.api.reset_cache(self.member.provider)
        return finding

    async def inspect_removal(self) -> Finding:
        """Tell whether it can be taken away."""
        return Finding(self.what, "nothing")

    async def remove(self) -> Finding:
        """Take it away."""
        return Finding(self.what, "nothing")

    async def _is_shown(self, member: PlatformResource) -> bool:
        """Whether the listing shows what the blob holds.

        Asking by name would make one service look again, and hide what the others miss.
        """
        blob = await self.blobs.read(member.blob_path)
        listed = [one for one in await self.api.list(member.path) if one.get("name") == member.name]
        if blob is None or not listed:
            return False
        return leaves_of(json.loads(blob.content.decode("utf-8-sig"))) == leaves_of(listed[0])
