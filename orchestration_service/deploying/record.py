"""Remembers what a deployment has written, so that the next one knows its own work from other people's.

It is one blob beside the resources, which no part of the platform reads. What is about to be written is noted before it is written: a
deployment that dies in between finds its own work again. Losing the record loses no resource; everything is then somebody else's, and is
left alone unless the operator says otherwise. It holds digests, and no secret.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestration_service.deploying.errors import ChangedMeanwhile, Refused
from orchestration_service.deploying.leaves import Digests
from orchestration_service.deploying.reference_blobs import ReferenceBlobs

RECORD = "FoundationaLLM.ClaudeCode/installation.json"
"""Where it is in the container."""

_FORMAT = 1


class Written(BaseModel):
    """What is remembered of one thing."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    leaves: Mapping[str, Sequence[str]] = Field(default_factory=dict)
    """By path, the digests a leaf has had from us: as it was written, and as it was about to be."""
    existed: bool = False
    """It was there before us and was taken over: it is not ours to remove."""
    before: str | None = None
    """Its value before us, of a plain entry; of one that is no secret."""


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    written: dict[str, Written]


@dataclass
class Record:
    """What was written, by what it is. Read anew at the begin of every run."""

    _blobs: ReferenceBlobs
    _entries: Mapping[str, Written] = field(default_factory=dict)
    _etag: str | None = None

    async def load(self) -> None:
        """Read it.

        Raises:
            Refused: It is there and cannot be understood.
        """
        blob = await self._blobs.read(RECORD)
        self._entries, self._etag = {}, None
        if blob is not None:
            self._entries, self._etag = _entries(blob.content), blob.etag

    def written(self, what: str) -> Written | None:
        """Return what is remembered of something, None when we never wrote it."""
        return self._entries.get(what)

    def digests(self, what: str) -> Digests | None:
        """Return the digests of something's leaves, None when we never wrote it."""
        known = self._entries.get(what)
        return None if known is None else known.leaves

    async def intend(
        self, what: str, digests: Mapping[str, str], *, existed: bool = False, before: str | None = None, before_is_outdated: bool = False
    ) -> None:
        """Note what something is about to be; what it was before is ours as well, until `settle`.

        Args:
            what: Which thing.
            digests: Of its leaves.
            existed: It is there; counts only when it was not ours so far.
            before: Its value; counts likewise.
            before_is_outdated: Others have written it since, so what it was before us is not what it should be again.
        """
        known = self._entries.get(what) or Written(existed=existed, before=before)
        if before_is_outdated:
            known = known.model_copy(update={"existed": True, "before": None})
        leaves = {path: _both(known.leaves.get(path, ()), digests.get(path)) for path in sorted({*known.leaves, *digests})}
        await self._save({**self._entries, what: known.model_copy(update={"leaves": leaves})})

    async def settle(self, what: str, digests: Mapping[str, str], *, kept: Collection[str] = ()) -> None:
        """Note that something is now what it was to be, but for leaves that stay as somebody else chose them."""
        before = self._entries[what].leaves
        leaves = {path: [value] for path, value in digests.items()} | {path: before[path] for path in kept if path in before}
        await self._save({**self._entries, what: self._entries[what].model_copy(update={"leaves": dict(sorted(leaves.items()))})})

    async def forget(self, what: str) -> None:
        """Note that something is gone. The record goes with the last of its entries."""
        if what not in self._entries:
            return
        left = {name: entry for name, entry in self._entries.items() if name != what}
        if left:
            await self._save(left)
            return
        await self._blobs.delete(RECORD, self._etag or "")
        self._entries, self._etag = {}, None

    async def forget_taken_over(self, what: str) -> None:
        """Forget something that was there before us and stays."""
        known = self.written(what)
        if known is not None and known.existed:
            await self.forget(what)

    def names(self) -> tuple[str, ...]:
        """Return what was written."""
        return tuple(self._entries)

    async def _save(self, entries: Mapping[str, Written]) -> None:
        if entries == self._entries:
            return
        content = _Content(format=_FORMAT, written=dict(sorted(entries.items()))).model_dump_json(indent=1, exclude_defaults=False)
        try:
            self._etag = await self._blobs.write(RECORD, content.encode(), self._etag)
        except ChangedMeanwhile as error:
            raise ChangedMeanwhile("Another deployment of this agent is running. Let it end, then run this one again.") from error
        self._entries = MappingProxyType(dict(entries))


def _both(before: Sequence[str], after: str | None) -> list[str]:
    return list(dict.fromkeys([*before, after] if after is not None else before))


def _entries(content: bytes) -> Mapping[str, Written]:
    try:
        return MappingProxyType(_Content.model_validate_json(content).written)
    except ValidationError as error:
        said = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise Refused(
            f"The record of the installation, blob {RECORD!r}, cannot be understood ({said}). Use the version that wrote it, or delete the "
            "blob: what is installed then counts as somebody else's, and --overwrite takes it over again.",
            status=0,
        ) from error
