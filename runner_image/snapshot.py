"""Records the workspace as git trees, and turns two of them into a patch that is proven to apply.

Everything happens in a git directory of the runner's own, behind the wall and without network; the user's index is not touched, and the
workspace cannot be written. See docs/decisions/0005.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner_image.errors import WorkspaceError
from runner_image.scratch import BASE_SCRIPT, CHANGE_SCRIPT, Facts, Scratch, shown
from runner_image.walls import Wall
from workflow_schemas.manifest import PatchFacts

_BASE_SECONDS = 120.0
_CHANGE_SECONDS = 60.0
_MAX_PATCH_BYTES = 64 * 1024 * 1024
_MAX_PATHS = 200
_MAX_NESTED = 200


@dataclass(frozen=True)
class Base:
    """The workspace as it was when the turn began."""

    tree: str
    commit: str | None
    is_commit: bool
    remarks: tuple[str, ...]
    from_windows: bool = False


@dataclass(frozen=True)
class Change:
    """What the turn changed."""

    facts: PatchFacts
    patch: bytes
    remarks: tuple[str, ...]


class Snapshots:
    """Takes snapshots of one workspace."""

    def __init__(self, wall: Wall) -> None:
        self._scratch = Scratch(wall)

    async def base(self) -> Base:
        """Record the workspace before the agent touches it.

        Raises:
            WorkspaceError: git fails or takes too long; the message says so.
        """
        await self._scratch.clear()
        facts, remarks = await self._recorded(BASE_SCRIPT, _BASE_SECONDS)
        tree, head, head_tree = facts.one("tree"), facts.one("head"), facts.one("headtree")
        from_windows = bool(facts.all("windows"))
        if head_tree and head_tree != tree:
            remarks.append("The workspace had changes that were not committed; the patch applies to the files as you sent them.")
        if from_windows:
            remarks.append("The files were checked out on Windows: line endings and file modes are recorded as git records them there.")
        if submodules := await self._scratch.submodules():
            remarks.append(f"Changes inside submodules are in the archive, not in the patch: {_some(submodules)}.")
        is_commit = bool(head_tree) and head_tree == tree
        return Base(tree=tree, commit=head or None, is_commit=is_commit, remarks=tuple(remarks), from_windows=from_windows)

    async def change(self, base: Base) -> Change:
        """Record the workspace again and return the difference, proven by applying it to the base.

        Raises:
            WorkspaceError: git fails or takes too long; the message says so.
        """
        options = self._scratch.options(from_windows=base.from_windows)
        facts, remarks = await self._recorded(CHANGE_SCRIPT, _CHANGE_SECONDS, options=options, base=base.tree)
        result = facts.one("tree")
        proven = facts.one("proof") == result
        patch, numbers, names = await asyncio.to_thread(_difference, self._scratch.folder, remarks)
        paths = [shown(name) for name in names.split(b"\0") if name]
        added, removed = _count(numbers)
        facts_of_patch = PatchFacts(
            base_commit=base.commit,
            base_tree=base.tree,
            result_tree=result,
            base_is_commit=base.is_commit,
            proven=proven,
            reason="" if proven else facts.one("failed") or "the patch applies but gives another tree",
            files_changed=len(paths),
            insertions=added,
            deletions=removed,
            changed_paths=tuple(paths[:_MAX_PATHS]),
        )
        return Change(facts=facts_of_patch, patch=patch, remarks=tuple(remarks))

    async def _recorded(self, script: str, seconds: float, *, options: str = "", base: str = "") -> tuple[Facts, list[str]]:
        """Run a script that records; repositories inside the workspace are recorded by their files, not by their commit."""
        facts, remarks = await self._scratch.run(script, seconds=seconds, options=options, base=base), list[str]()
        if facts.all("embedded") or facts.all("unread"):
            nested = await self._scratch.nested()
            if nested:
                facts = await self._scratch.run(script, seconds=seconds, options=options, base=base, hidden=nested[:_MAX_NESTED])
        if facts.all("unread"):
            remarks.append(f"Some files could not be recorded and are not in the patch: {facts.one('unread')}")
        if facts.all("embedded"):
            remarks.append("A git repository inside the workspace is recorded by its commit only; its files are in the archive.")
        if not facts.one("tree"):
            raise WorkspaceError("git did not record the workspace")
        return facts, remarks


def _difference(folder: Path, remarks: list[str]) -> tuple[bytes, str, bytes]:
    """Return the patch, its numbers and its names."""
    numbers = (folder / "changes.numstat").read_text("utf-8", "replace")
    return _patch(folder / "changes.patch", remarks), numbers, (folder / "changes.names").read_bytes()


def _patch(path: Path, remarks: list[str]) -> bytes:
    size = path.stat().st_size
    if size > _MAX_PATCH_BYTES:
        remarks.append(f"The patch of {size} bytes is too large to hand out; the archive holds the files.")
        return b""
    return path.read_bytes()


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _count(numstat: str) -> tuple[int, int]:
    rows = [re.match(r"(\d+)\t(\d+)\t", line) for line in numstat.splitlines()]
    numbers = [(int(row[1]), int(row[2])) for row in rows if row]
    return sum(one for one, _ in numbers), sum(two for _, two in numbers)
