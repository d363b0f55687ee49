"""A workflow or tool: the Management API only reads these, so they are a blob and a line in the provider's list.

The blob is written first and taken away last, when nobody remembers the line any more: a line that leads to nothing is an error to
whoever follows it.
"""

import json
from dataclasses import dataclass
from typing import Any

from deployment_templates.resources.members import PlatformResource
from deployment_templates.values import WORKFLOWS
from orchestration_service.deploying.errors import Refused
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.leaves import changed_since, differences, digests, merged, type_first
from orchestration_service.deploying.management_api import ManagementApi
from orchestration_service.deploying.record import Record
from orchestration_service.deploying.reference_blobs import Blob, ReferenceBlobs


@dataclass(frozen=True)
class SeededStep:
    """One such resource."""

    api: ManagementApi
    """Who lists it."""

    blobs: ReferenceBlobs
    """Where it is."""

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
        return f"{'workflow' if self.member.path == WORKFLOWS else 'tool'} {self.member.name!r}"

    async def inspect(self) -> Finding:
        """Compare what is there with what is wanted."""
        return (await self._compared())[0]

    async def apply(self) -> Finding:
        """Write the difference."""
        finding, blob = await self._compared()
        if not finding.acts:
            return finding
        there = None if blob is None else self._parsed(blob)
        after = self.member.blob_body if there is None else merged(there, finding.leaves)
        kept = {".".join(leaf.path) for leaf in finding.kept}
        ours = {path: known for path, known in digests(self.member.body).items() if path not in kept}
        await self.record.intend(self.what, ours, existed=blob is not None)
        if there is None or finding.leaves:
            content = json.dumps(type_first(after), indent=2, ensure_ascii=False).encode()
            await self.blobs.write(self.member.blob_path, content, blob.etag if blob else None)
        await self.blobs.merge(self.member.reference)
        await self.record.settle(self.what, ours, kept=kept)
        return finding

    async def inspect_removal(self) -> Finding:
        """Tell whether it can be taken away."""
        written = self.record.written(self.what)
        blob = await self.blobs.read(self.member.blob_path)
        if written is None or written.existed:
            return Finding(self.what, "nothing", note="kept: it was there before" if blob else "", stays=blob is not None)
        theirs = changed_since(self._parsed(blob), written.leaves) if blob else ()
        if theirs and not self.force:
            return Finding(self.what, "nothing", kept=theirs, note="kept: somebody else has changed it; see --force", stays=True)
        return Finding(self.what, "remove", note="" if blob else "only traces of it are left")

    async def remove(self) -> Finding:
        """Take it away."""
        finding = await self.inspect_removal()
        if not finding.acts:
            await self.record.forget_taken_over(self.what)
            return finding
        await self.blobs.strip(self.member.reference)
        if any(one.get("name") == self.member.name for one in await self.api.list(self.member.path)):
            await self.api.reset_cache(self.member.provider)
        blob = await self.blobs.read(self.member.blob_path)
        if blob is not None:
            await self.blobs.delete(self.member.blob_path, blob.etag)
        await self.record.forget(self.what)
        return finding

    async def _compared(self) -> tuple[Finding, Blob | None]:
        blob = await self.blobs.read(self.member.blob_path)
        is_listed = await self.blobs.is_listed(self.member.reference)
        if blob is None:
            return Finding(self.what, "create", note=self.member.why), None
        found = differences(self._parsed(blob), self.member.body, self.record.digests(self.what))
        kept = () if self.overwrite else tuple(leaf for leaf in found if leaf.is_theirs)
        leaves = tuple(leaf for leaf in found if leaf not in kept)
        notes = ["its line in the list of resources is missing or wrong"] if not is_listed else []
        notes += ["kept: chosen by somebody else; see --overwrite"] if kept else []
        return Finding(self.what, "change" if leaves or not is_listed else "nothing", leaves, kept, "; ".join(notes)), blob

    def _parsed(self, blob: Blob) -> dict[str, Any]:
        try:
            return dict(json.loads(blob.content.decode("utf-8-sig")))
        except (ValueError, TypeError) as error:
            raise Refused(f"The blob {self.member.blob_path!r} is no resource ({error}). Look at it; it is left as it is.", 0) from error
