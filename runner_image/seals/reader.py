"""Finds the newest seal among parts in any order, and everything it needs of the seals before it.

The parts come back from the platform and are hostile. An index is named by its SHA-256 in the index that continues it, a pack by its own
in the index that lists it; so names and order of the parts say nothing, and a part of another conversation fits nowhere.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from runner_image.errors import SealError
from runner_image.seals.known import KnownSeal
from runner_image.seals.limits import DEFAULT_LIMITS, SealLimits
from runner_image.seals.parts import INDEX_MEMBER, members, part_name
from runner_image.seals.stored import Slot, expand, read_slot
from workflow_schemas.seal import SealEntry, SealHead, SealIndex, SealPack

_Head = TypeVar("_Head", bound=SealHead)


class Content(NamedTuple):
    """Bytes in the stream of one seal, and all the files that have them."""

    start: int
    """Where they begin."""

    end: int
    """Where they end."""

    entries: Sequence[SealEntry]
    """The files; at least one, all of the same size and SHA-256."""


@dataclass(frozen=True, kw_only=True)
class SealChain:
    """A seal and those it builds on, all of whose needed parts are there."""

    known: KnownSeal
    """The seal itself, without stamps."""

    seals: tuple[SealHead, ...]
    """All seals of the chain, oldest first; the last one is the seal itself."""

    contents: Sequence[Sequence[Content]]
    """What restoring needs of each of the seals, in the order of its stream."""

    packs: Mapping[str, Slot]
    """Where the packs lie, by SHA-256."""

    extras: Mapping[str, Sequence[Slot]]
    """Where documents lie, by name; of all the seals, so the hash tells which one is meant."""

    @property
    def index(self) -> SealIndex:
        """Index of the seal itself."""
        return self.known.index

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
    indexes: dict[str, _Found] = {}
    packs: dict[str, Slot] = {}
    extras: defaultdict[str, list[Slot]] = defaultdict(list)
    for part in parts:
        for name, slot in members(part):
            if name == INDEX_MEMBER:
                found = _read_head(slot, limits, index_sha256)
                indexes[found.sha256] = found
            elif name.startswith("seal/packs/"):
                packs[name.rpartition("/")[2]] = slot
            else:
                extras[name.rpartition("/")[2]].append(slot)
    newest = _newest(indexes, turn_number, index_sha256)
    index = _read_index(newest, limits)
    seals = _linked(index, indexes)
    contents = _contents(index, seals)
    _check_packs(seals, contents, packs)
    known = KnownSeal(index=index, index_sha256=newest.sha256)
    return SealChain(known=known, seals=seals, contents=contents, packs=packs, extras=extras)


def needed_packs(seal: SealHead, contents: Sequence[Content]) -> list[tuple[int, SealPack]]:
    """Return the packs that hold these contents, each with the place where it begins in the stream."""
    needed, begin, position = [], 0, 0
    for pack in seal.packs:
        end = begin + pack.size_bytes
        while position < len(contents) and contents[position].end <= begin:
            position += 1
        if position < len(contents) and contents[position].start < end:
            needed.append((begin, pack))
        begin = end
    return needed


@dataclass(frozen=True)
class _Found:
    """An index among the parts; read whole only if it is the newest one, since the others are proven by their hash."""

    sha256: str
    slot: Slot
    head: SealHead
    """What it says; the index itself if that is the one that was asked for."""


def _read_head(slot: Slot, limits: SealLimits, wanted: str | None) -> _Found:
    data = _index_bytes(slot, limits)
    sha256 = hashlib.sha256(data).hexdigest()
    return _Found(sha256, slot, _decoded(SealIndex if sha256 == wanted else SealHead, data, slot))


def _read_index(found: _Found, limits: SealLimits) -> SealIndex:
    index = found.head if isinstance(found.head, SealIndex) else _reread(found, limits)
    if index.chain_length > limits.max_chain or len(index.entries) > limits.max_entries:
        bounds = f"{limits.max_chain} seals or {limits.max_entries} entries"
        raise SealError(f"the seal of turn {index.turn_number} is above the limit of {bounds}")
    if sum(entry.size for entry in index.entries) > limits.max_tree_bytes:
        raise SealError(f"the seal of turn {index.turn_number} unpacks to more than {limits.max_tree_bytes} bytes")
    return index


def _reread(found: _Found, limits: SealLimits) -> SealIndex:
    data = _index_bytes(found.slot, limits)
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise SealError(f"the part {found.slot.part_name!r} changed while it was read; fetch it again")
    return _decoded(SealIndex, data, found.slot)


def _index_bytes(slot: Slot, limits: SealLimits) -> bytes:
    if slot.size > limits.max_index_bytes:
        raise SealError(f"the index in {slot.part_name!r} has more than {limits.max_index_bytes} bytes")
    return expand(read_slot(slot), limits.max_index_bytes, f"the index in {slot.part_name!r}")


def _decoded(model: type[_Head], data: bytes, slot: Slot) -> _Head:
    try:
        return model.decoded(data)
    except ValueError as error:
        raise SealError(f"the index in {slot.part_name!r} cannot be used: {str(error)[:300]}") from error


def _newest(indexes: Mapping[str, _Found], turn_number: int | None, index_sha256: str | None) -> _Found:
    if not indexes:
        raise SealError("none of the parts holds an index; fetch the last part of the seal too")
    if index_sha256 is not None:
        if index_sha256 not in indexes:
            raise SealError(f"the seal with the index {index_sha256!r} is not among the parts, or was changed")
        found = [indexes[index_sha256]]
    else:
        continued = {reference.index_sha256 for item in indexes.values() for reference in item.head.chain}
        found = [item for item in indexes.values() if turn_number is not None or item.sha256 not in continued]
    if turn_number is not None:
        found = [item for item in found if item.head.turn_number == turn_number]
    if len(found) != 1:
        turns = sorted(item.head.turn_number for item in indexes.values())
        wanted = "newest seal" if turn_number is None else f"seal of turn {turn_number}"
        raise SealError(f"the parts hold {len(found)} candidates for the {wanted} (turns {turns[:20]}); name the turn and its index")
    return found[0]


def _linked(index: SealIndex, indexes: Mapping[str, _Found]) -> tuple[SealHead, ...]:
    """Return the chain of a seal, each earlier one by the hash that names it."""
    seals: list[SealHead] = []
    for position, reference in enumerate(index.chain):
        if reference.index_sha256 not in indexes:
            raise SealError(f"the seal of turn {reference.turn_number} is missing, on which that of turn {index.turn_number} builds")
        earlier = indexes[reference.index_sha256].head
        fits = earlier.turn_number == reference.turn_number < index.turn_number and earlier.chain == index.chain[:position]
        if not fits:
            raise SealError(f"the seal of turn {index.turn_number} does not continue that of turn {reference.turn_number}")
        seals.append(earlier)
    return (*seals, index)


def _contents(index: SealIndex, seals: Sequence[SealHead]) -> list[list[Content]]:
    """Return what the newest tree needs, by seal; every content lies within its seal's stream and none overlaps another."""
    contents: list[list[Content]] = [[] for _ in seals]
    ends = [0] * len(seals)
    files = [entry for entry in index.entries if entry[1] == "file" and entry[4]]
    files.sort(key=itemgetter(6, 7))
    group: list[SealEntry] = []
    before: tuple[int, int, int, str] | None = None
    for entry in files:
        path, _, _, _, size, sha256, position, start = entry
        if (position, start, size, sha256) == before:
            group.append(entry)
            continue
        if start < ends[position]:
            raise SealError(f"the index contradicts itself about where {path[:80]!r} lies")
        before, group = (position, start, size, sha256), [entry]
        ends[position] = start + size
        contents[position].append(Content(start, start + size, group))
    for end, seal in zip(ends, seals, strict=True):
        if end > seal.stream_bytes:
            raise SealError(f"the seal of turn {seal.turn_number} holds less than a later one expects of it")
    return contents


def _check_packs(seals: Sequence[SealHead], contents: Sequence[Sequence[Content]], packs: Mapping[str, Slot]) -> None:
    for seal, wanted in zip(seals, contents, strict=True):
        for _, pack in needed_packs(seal, wanted):
            slot = packs.get(pack.sha256)
            if slot is None:
                name = part_name(seal.stem, pack.part)
                raise SealError(f"the part {name!r} of turn {seal.turn_number} is missing; fetch it too")
            if slot.size != pack.stored_bytes or (pack.codec == "raw" and slot.size != pack.size_bytes):
                raise SealError(f"a pack in {slot.part_name!r} does not have the size that turn {seal.turn_number} states")
