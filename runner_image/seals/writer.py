"""Writes a seal: walks the tree, reads what may have changed, stores what the chain does not have yet.

A file is trusted to be unchanged only by a stamp that this sandbox itself made (see `known`), and by default only where the file system
also notes writes through memory maps. tmpfs does not (measured on Linux 6.18): there a stamp counts only for a file of which a witness
saw that nobody opened it for writing (see `witness`), and without a witness every file is read and hashed again.
An entry of the index always describes exactly the bytes that were stored, whatever happens to the file meanwhile.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner_image.errors import SealError
from runner_image.seals.inventory import Inventory
from runner_image.seals.known import KnownSeal, records_mapped_writes
from runner_image.seals.limits import DEFAULT_LIMITS, SealLimits
from runner_image.seals.pack import PackStream, compress, packing
from runner_image.seals.page import encoded, paged, tree_sha256_of
from runner_image.seals.parts import INDEX_MEMBER, PartWriter
from runner_image.seals.walk import Exclude, listings, open_root, reason_of
from runner_image.seals.witness import Testimony
from workflow_schemas.seal import (
    EXTRA_PATTERN,
    STEM_PATTERN,
    LeftOut,
    SealEntry,
    SealExtra,
    SealIndex,
)

_WHOLE_BYTES = 1024 * 1024
_EXTRA_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Trust = Literal["never", "recorded", "always"]
"""When a stamp counts: never, where the file system records every kind of write, or always (a write through a map may be missed)."""


@dataclass(frozen=True, kw_only=True)
class WrittenSeal:
    """A seal that was written."""

    known: KnownSeal
    """What the next seal needs."""

    parts: tuple[Path, ...]
    """The archives, in order."""

    new_bytes: int
    """Bytes of content that no earlier seal of the chain had, before packing."""

    total_bytes: int
    """Size of the parts together."""

    left_out: tuple[LeftOut, ...]
    """What is not in it although nobody chose so; also in the index."""

    @property
    def index(self) -> SealIndex:
        """Its table of contents."""
        return self.known.index


def write_seal(
    root: Path,
    target: Path,
    *,
    stem: str,
    turn_number: int,
    parent: KnownSeal | None = None,
    extras: Mapping[str, bytes | Path] | None = None,
    exclude: Exclude | None = None,
    trust: Trust = "recorded",
    testimony: Testimony | None = None,
    limits: SealLimits = DEFAULT_LIMITS,
) -> WrittenSeal:
    """Seal a folder. Blocks; call it in a worker thread.

    Args:
        root: The folder. It may be hostile, and may even change meanwhile.
        target: An existing folder for the parts, which are named after the stem. Nothing is overwritten.
        stem: Beginning of the names, such as `turn-003-seal`.
        turn_number: The turn; higher than the parent's.
        parent: The seal to continue, written or restored here: only then are its contents proven. When its chain is as long as
            allowed, a full seal is written instead.
        extras: Documents by name, as bytes or as a file to copy.
        exclude: Chooses entries to leave out, see `excluding`.
        trust: When a file with an unchanged stamp need not be read again.
        testimony: What a witness saw since the parent's stamps were made; without it, stamps on a tmpfs count only if trusted always.
        limits: What is above them is left out and named.

    Raises:
        SealError: The seal could not be written; no part of it is left.
    """
    if parent is not None and turn_number <= parent.index.turn_number:
        raise SealError(f"turn {turn_number} cannot continue the seal of turn {parent.index.turn_number}; number the turns upwards")
    _check_names(stem, extras or {})
    top = open_root(root)
    try:
        with PartWriter(target, stem, limits.max_part_bytes) as parts:
            with packing(parts) as stream:
                tree = _inventory(stream, limits, parent, top, trust, testimony)
                for listing in listings(top, exclude, tree.miss):
                    tree.take(listing)
                stream.flush()
                entries = tree.sorted_entries()
                pages = tuple(paged(entries, parent.pages if parent else ()))
                tree_hash = tree_sha256_of(pages)
                stream.finish()
                documents = [document for name, source in (extras or {}).items() if (document := _extra(parts, name, source, tree.miss))]
                index = _index(tree, entries, tree_hash, stem, turn_number, documents)
                sha256 = _published(parts, stream, encoded(index, pages))
                device = os.fstat(top).st_dev
    except OSError as error:
        raise SealError(f"the seal {stem!r} could not be written: {error.strerror}; make room and seal again") from error
    finally:
        os.close(top)
    known = KnownSeal(index=index, index_sha256=sha256, stamps=tree.stamps(), device=device, pages=pages)
    return WrittenSeal(known=known, parts=parts.paths, new_bytes=stream.length, total_bytes=parts.total_bytes, left_out=index.left_out)


def _check_names(stem: str, extras: Mapping[str, bytes | Path]) -> None:
    if not re.fullmatch(STEM_PATTERN, stem):
        raise SealError(f"the stem {stem!r} cannot begin a file name; use letters, digits, '-' and '_'")
    for name in extras:
        if not re.fullmatch(EXTRA_PATTERN, name):
            raise SealError(f"the document name {name!r} is not plain; use letters, digits, '.', '-' and '_'")


def _inventory(
    stream: PackStream, limits: SealLimits, parent: KnownSeal | None, top: int, trust: Trust, testimony: Testimony | None
) -> Inventory:
    """Decide which stamps count: those of this device, and where maps go unnoticed only with a witness."""
    device, recorded = os.fstat(top).st_dev, records_mapped_writes(top)
    by_themselves = recorded or trust == "always"
    counts = parent is not None and bool(parent.stamps) and device == parent.device and trust != "never"
    counts = counts and (by_themselves or testimony is not None)
    return Inventory(
        stream, limits, parent, device if counts else None, leased=not recorded, testimony=None if by_themselves else testimony
    )


def _index(
    tree: Inventory, entries: tuple[SealEntry, ...], tree_hash: str, stem: str, turn_number: int, documents: list[SealExtra]
) -> SealIndex:
    # model_construct: checking thousands of our own entries again would cost a third of a small seal; the tests do it
    return SealIndex.model_construct(
        schema_version="1",
        turn_number=turn_number,
        stem=stem,
        chain=tree.chain,
        tree_sha256=tree_hash,
        entries=entries,
        packs=tuple(tree.stream.packs),
        extras=tuple(documents),
        left_out=tree.left_out(),
    )


def _published(parts: PartWriter, stream: PackStream, data: bytes) -> str:
    """Store an index, and return its SHA-256."""
    packed = stream.workers.submit(compress, data)
    sha256 = hashlib.sha256(data).hexdigest()
    parts.add(INDEX_MEMBER, packed.result())
    return sha256


def _extra(parts: PartWriter, name: str, source: bytes | Path, missed: Callable[[str, str], None]) -> SealExtra | None:
    if isinstance(source, bytes):
        if parts.room_for(len(source)):
            parts.add(f"seal/extra/{name}", source)
            return SealExtra(name=name, size_bytes=len(source), sha256=hashlib.sha256(source).hexdigest())
        missed(f"extra:{name}", "it is larger than a part of a seal")
        return None
    try:
        file = os.open(source, _EXTRA_FLAGS)
    except OSError as error:
        missed(f"extra:{name}", reason_of(error))
        return None
    try:
        return _copied(parts, name, file, missed)
    finally:
        os.close(file)


def _copied(parts: PartWriter, name: str, file: int, missed: Callable[[str, str], None]) -> SealExtra | None:
    status, hasher = os.fstat(file), hashlib.sha256()
    size = left = status.st_size
    if not stat.S_ISREG(status.st_mode) or not parts.room_for(size):
        missed(f"extra:{name}", "it is no file, or larger than a part of a seal")
        return None
    parts.begin(f"seal/extra/{name}", size)
    while left and (piece := os.read(file, min(left, _WHOLE_BYTES))):
        parts.write(piece)
        hasher.update(piece)
        left -= len(piece)
    for missing in range(left, 0, -_WHOLE_BYTES):  # the archive must stay in step although the file was cut off
        parts.write(bytes(min(missing, _WHOLE_BYTES)))
    parts.end(size)
    if left:
        missed(f"extra:{name}", "it was cut off while the seal was written")
        return None
    return SealExtra(name=name, size_bytes=size, sha256=hasher.hexdigest())
