"""Puts the tree of a seal into an empty folder: built beside the final place, proven, and only then moved there.

The place is a hidden folder inside the empty one, because the workspace may be a mount of its own, over which nothing can be renamed.
Folders come first, then files, links last; so nothing is ever written through a link of the seal. Modes and times of folders come at
the very end, because a folder may forbid writing.
"""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from runner_image.errors import SealError
from runner_image.seals.known import KnownSeal
from runner_image.seals.laying import Content as LaidContent
from runner_image.seals.laying import Layout, Stamp
from runner_image.seals.laying import Pack as LaidPack
from runner_image.seals.limits import DEFAULT_LIMITS, SealLimits
from runner_image.seals.reader import SealChain
from runner_image.seals.sharing import Companion, CompanionLost, accompanied
from runner_image.seals.stored import Slot
from runner_image.seals.walk import FOLDER_FLAGS, open_root
from workflow_schemas.seal import SealEntry, path_bytes

_STAGING = ".seal-being-restored-"
_NO_SLOT = Slot("", 0, 0)


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A tree that was restored; every file was held against its SHA-256."""

    known: KnownSeal
    """The seal with stamps of this sandbox: what the next seal continues."""

    tree_sha256: str
    """Hash of the tree, proven."""

    files: int
    """Number of files."""

    size_bytes: int
    """Size of the files together."""

    extras: tuple[str, ...]
    """Names of the documents; read them with `SealChain.extra`."""


def restore(chain: SealChain, root: Path, *, limits: SealLimits = DEFAULT_LIMITS) -> Restored:
    """Restore a seal. Blocks; call it in a worker thread, before anything else may touch the folder.

    Args:
        chain: What `read_seals` returned.
        root: An existing, empty folder. What an earlier attempt left there is taken away.
        limits: Bounds on what is written.

    Raises:
        SealError: The folder is not empty, the disk is full, or the seal is damaged or hostile. The folder is empty then.
    """
    index = chain.index
    size = sum(entry.size for entry in index.entries)
    if len(index.entries) > limits.max_entries or size > limits.max_tree_bytes:
        raise SealError(f"the seal of turn {index.turn_number} is above the limit: {len(index.entries)} entries, {size} bytes")
    top = open_root(root)
    try:
        try:
            stamps = _restored(chain, top, size)
        except CompanionLost:
            stamps = _restored(chain, top, 0)
        device = os.fstat(top).st_dev
    except OSError as error:
        raise SealError(f"the seal of turn {index.turn_number} could not be restored: {error.strerror or error}") from error
    finally:
        os.close(top)
    known = KnownSeal(index=index, index_sha256=chain.known.index_sha256, stamps=stamps, device=device)
    names = tuple(extra.name for extra in index.extras)
    return Restored(known=known, tree_sha256=index.tree_sha256, files=len(stamps), size_bytes=size, extras=names)


def _restored(chain: SealChain, top: int, size_bytes: int) -> dict[str, Stamp]:
    entries = chain.index.entries
    with _staging(top, entries) as (name, staging):
        tree = _Tree(staging, entries)
        with accompanied(staging, size_bytes) as companion:
            tree.make_folders()
            tree.write_files(chain, companion)
        tree.make_links()
        _move_up(top, name, staging)
        tree.finish_folders(top)
    return tree.stamps


@contextmanager
def _staging(top: int, entries: Sequence[SealEntry]) -> Iterator[tuple[str, int]]:
    """Make the hidden folder; when the block fails, nothing of the tree is left, wherever it already was."""
    for name in os.listdir(top):
        if not name.startswith(_STAGING):
            raise SealError(f"the folder is not empty ({name[:80]!r} is in it); a seal is restored into an empty one only")
        _remove(name, top)
    names = {entry.path.partition("/")[0] for entry in entries}
    while (name := _STAGING + secrets.token_hex(8)) in names:
        pass
    os.mkdir(name, 0o700, dir_fd=top)
    try:
        staging = os.open(name, FOLDER_FLAGS, dir_fd=top)
        try:
            yield name, staging
        finally:
            os.close(staging)
    except BaseException:
        for left in os.listdir(top):
            _remove(left, top)
        raise


def _remove(name: str, top: int) -> None:
    """Take a folder or file away; what resists is left, the restore fails anyway and the next attempt refuses the folder."""
    with suppress(OSError):
        os.unlink(name, dir_fd=top)
        return
    shutil.rmtree(name, ignore_errors=True, dir_fd=top)


def _move_up(top: int, name: str, staging: int) -> None:
    for child in os.listdir(staging):
        os.rename(child, child, src_dir_fd=staging, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


@dataclass
class _Tree:
    """The tree while it is built."""

    top: int
    entries: Sequence[SealEntry]
    stamps: dict[str, Stamp] = field(default_factory=dict)

    def make_folders(self) -> None:
        for entry in self.entries:
            if entry.kind == "directory":
                os.mkdir(path_bytes(entry.path), 0o700, dir_fd=self.top)

    def make_links(self) -> None:
        for entry in self.entries:
            if entry.kind == "symlink":
                path = path_bytes(entry.path)
                os.symlink(path_bytes(entry.content), path, dir_fd=self.top)
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=self.top, follow_symlinks=False)

    def finish_folders(self, top: int) -> None:
        """Set modes and times of folders, the deepest first."""
        for entry in reversed(self.entries):
            if entry.kind == "directory":
                path = path_bytes(entry.path)
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=top)
                if entry.mode != 0o700:
                    os.chmod(path, entry.mode, dir_fd=top)

    def write_files(self, chain: SealChain, companion: Companion | None) -> None:
        packs, contents = _laid_end_to_end(chain)
        layout = Layout(self.top, packs, contents)
        for path, kind, mode, mtime_ns, size, _, _, _ in self.entries:
            if kind == "file" and not size:
                layout.write((path, mode, mtime_ns), b"")
        if companion:
            companion.share(layout, packs, contents)
        else:
            layout.lay((0, len(contents)))
        self.stamps = layout.stamps


def _laid_end_to_end(chain: SealChain) -> tuple[list[LaidPack], list[LaidContent]]:
    """Return the packs of all the seals as one stream, and what is needed of it."""
    packs: list[LaidPack] = []
    contents: list[LaidContent] = []
    end = number = 0
    for seal, needed in zip(chain.seals, chain.contents, strict=True):
        shift = end
        for pack in seal.packs:
            slot = chain.packs.get(pack.sha256) or _NO_SLOT  # of a pack that nothing needs
            packs.append((end, end + pack.size_bytes, pack.sha256, pack.codec == "raw", (slot.part, slot.offset, slot.size)))
            end += pack.size_bytes
        for content in needed:
            start = content.start + shift
            while packs[number][1] <= start:
                number += 1
            files = [(path, mode, mtime_ns) for path, _, mode, mtime_ns, _, _, _, _ in content.entries]
            contents.append((start, content.end + shift, number, content.entries[0].content, files))
    return packs, contents
