"""Finds the newest seal among parts in any order, and everything it needs of the seals before it.

The parts come back from the platform and are hostile. An index is named by its SHA-256 in the index that continues it, a pack by its own
in the index that lists it; so names and order of the parts say nothing, and a part of another conversation fits nowhere.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner_image.errors import SealError
from runner_image.seals.known import KnownSeal
from runner_image.seals.limits import DEFAULT_LIMITS, SealLimits
from runner_image.seals.pack import expand
from runner_image.seals.parts import INDEX_MEMBER, Slot, members, part_name, read_slot
from workflow_schemas.seal import SealEntry, SealIndex, SealPack


@dataclass(frozen=True, kw_only=True)
class Content:
    """Bytes in the stream of one seal, and all the files that have them."""

    start: int
    """Where they begin."""

    entries: tuple[SealEntry, ...]
    """The files; at least one, all of the same size and SHA-256."""

    @property
    def end(self) -> int:
        """Where they end."""
        return self.start + self.entries[0].size


@dataclass(frozen=True, kw_only=True)
class SealChain:
    """A seal and those it builds on, all of whose needed parts are there."""

    seals: tuple[KnownSeal, ...]
    """Oldest first; the last one is the seal itself."""

    contents: Sequence[Sequence[Content]]
    """What restoring needs of each of the seals, in the order of its stream."""

    packs: Mapping[str, Slot]
    """Where the packs lie, by SHA-256."""

    extras: Mapping[str, Sequence[Slot]]
    """Where documents lie, by name; of all the seals, so the hash tells which one is meant."""

    @property
    def index(self) -> SealIndex:
        """Index of the seal itself."""
        return self.seals[-1].index

    def extra(self, name: str) -> bytes:
        """Return a document of the seal. Blocks.

        Raises:
            SealError: The seal has none of this name, or it is damaged or its part is missing.
        """
        described = next((extra for extra in self.index.extras if extra.name == name), None)
        if described is None:
            raise SealError(f"the seal of turn {self.index.turn_number} has no document {name!r}")
        for slot in self.extras.get(name, ()):
            if slot.size == described.size_bytes:
                data = read_slot(slot)
                if hashlib.sha256(data).hexdigest() == described.sha256:
                    return data
        raise SealError(f"the document {name!r} of turn {self.index.turn_number} is damaged, or its part is missing; fetch all parts again")


def read_seals(
    parts: Iterable[Path], *, turn_number: int | None = None, index_sha256: str | None = None, limits: SealLimits = DEFAULT_LIMITS
) -> SealChain:
    """Put a chain together. Blocks; reads indexes only, contents are proven when they are restored.

    Args:
        parts: Archives of one or more seals, in any order.
        turn_number: The turn to read; by default the seal that no other one continues.
        index_sha256: What the index of that seal must hash to, when the caller noted it: nothing else proves the newest index.
        limits: What is above them is refused.

    Raises:
        SealError: A part is damaged, missing or of another conversation, or a limit is exceeded.
    """
    indexes: dict[str, SealIndex] = {}
    packs: dict[str, Slot] = {}
    extras: defaultdict[str, list[Slot]] = defaultdict(list)
    for part in parts:
        for name, slot in members(part):
            if name == INDEX_MEMBER:
                sha256, index = _read_index(slot, limits)
                indexes[sha256] = index
            elif name.startswith("seal/packs/"):
                packs[name.rpartition("/")[2]] = slot
            else:
                extras[name.rpartition("/")[2]].append(slot)
    seals = _linked(_head(indexes, turn_number, index_sha256), indexes, limits)
    contents = _contents(seals)
    _check_packs(seals, contents, packs)
    return SealChain(seals=seals, contents=contents, packs=packs, extras=extras)


def needed_packs(index: SealIndex, contents: Sequence[Content]) -> list[tuple[int, SealPack]]:
    """Return the packs that hold these contents, each with the place where it begins in the stream."""
    needed, begin, position = [], 0, 0
    for pack in index.packs:
        end = begin + pack.size_bytes
        while position < len(contents) and contents[position].end <= begin:
            position += 1
        if position < len(contents) and contents[position].start < end:
            needed.append((begin, pack))
        begin = end
    return needed


def _read_index(slot: Slot, limits: SealLimits) -> tuple[str, SealIndex]:
    what = f"the index in {slot.part.name!r}"
    data = expand(read_slot(slot), limits.max_index_bytes, what)
    try:
        index = SealIndex.decoded(data)
    except ValueError as error:
        raise SealError(f"{what} cannot be used: {str(error)[:300]}") from error
    return hashlib.sha256(data).hexdigest(), index


def _head(indexes: Mapping[str, SealIndex], turn_number: int | None, index_sha256: str | None) -> str:
    if not indexes:
        raise SealError("none of the parts holds an index; fetch the last part of the seal too")
    if index_sha256 is not None:
        if index_sha256 not in indexes:
            raise SealError(f"the seal with the index {index_sha256!r} is not among the parts, or was changed")
        found = [index_sha256]
    else:
        continued = {reference.index_sha256 for index in indexes.values() for reference in index.chain}
        found = [sha256 for sha256 in indexes if turn_number is not None or sha256 not in continued]
    if turn_number is not None:
        found = [sha256 for sha256 in found if indexes[sha256].turn_number == turn_number]
    if len(found) != 1:
        turns = sorted(index.turn_number for index in indexes.values())
        wanted = "newest seal" if turn_number is None else f"seal of turn {turn_number}"
        raise SealError(f"the parts hold {len(found)} candidates for the {wanted} (turns {turns[:20]}); name the turn and its index")
    return found[0]


def _linked(head: str, indexes: Mapping[str, SealIndex], limits: SealLimits) -> tuple[KnownSeal, ...]:
    """Return the chain of a seal, each index held against the hash by which it is named."""
    index = indexes[head]
    if index.chain_length > limits.max_chain or len(index.entries) > limits.max_entries:
        raise SealError(
            f"the seal of turn {index.turn_number} is above the limit of {limits.max_chain} seals or {limits.max_entries} entries"
        )
    if sum(entry.size for entry in index.entries) > limits.max_tree_bytes:
        raise SealError(f"the seal of turn {index.turn_number} unpacks to more than {limits.max_tree_bytes} bytes")
    seals = []
    for position, reference in enumerate(index.chain):
        earlier = indexes.get(reference.index_sha256)
        if earlier is None:
            raise SealError(f"the seal of turn {reference.turn_number} is missing, on which that of turn {index.turn_number} builds")
        if (
            earlier.turn_number != reference.turn_number
            or earlier.chain != index.chain[:position]
            or reference.turn_number >= index.turn_number
        ):
            raise SealError(f"the seal of turn {index.turn_number} does not continue that of turn {reference.turn_number}")
        seals.append(KnownSeal(index=earlier, index_sha256=reference.index_sha256))
    return (*seals, KnownSeal(index=index, index_sha256=head))


def _contents(seals: Sequence[KnownSeal]) -> list[list[Content]]:
    """Return what the newest tree needs, by seal; every content lies within its seal's stream and none overlaps another."""
    files: defaultdict[tuple[int, int], list[SealEntry]] = defaultdict(list)
    for entry in seals[-1].index.entries:
        if entry.kind == "file" and entry.size:
            files[entry.seal, entry.start].append(entry)
    contents: list[list[Content]] = [[] for _ in seals]
    ends = [0] * len(seals)
    for (seal, start), entries in sorted(files.items()):
        if start < ends[seal] or any((entry.size, entry.content) != (entries[0].size, entries[0].content) for entry in entries):
            raise SealError(f"the index contradicts itself about where {entries[0].path[:80]!r} lies")
        content = Content(start=start, entries=tuple(entries))
        ends[seal] = content.end
        contents[seal].append(content)
    for seal, known in zip(ends, seals, strict=True):
        if seal > known.index.stream_bytes:
            raise SealError(f"the seal of turn {known.index.turn_number} holds less than a later one expects of it")
    return contents


def _check_packs(seals: Sequence[KnownSeal], contents: Sequence[Sequence[Content]], packs: Mapping[str, Slot]) -> None:
    for known, wanted in zip(seals, contents, strict=True):
        for _, pack in needed_packs(known.index, wanted):
            slot = packs.get(pack.sha256)
            if slot is None:
                name = part_name(known.index.stem, pack.part)
                raise SealError(f"the part {name!r} of turn {known.index.turn_number} is missing; fetch it too")
            if slot.size != pack.stored_bytes or (pack.codec == "raw" and slot.size != pack.size_bytes):
                raise SealError(f"a pack in {slot.part.name!r} does not have the size that turn {known.index.turn_number} states")
