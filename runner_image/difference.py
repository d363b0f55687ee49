"""Seals of the difference only: what the user's files make by themselves is not sealed again, and comes from those files when restored.

The workspace that the inputs make is the basis; its tree is noted when it was just unpacked. A seal then leaves out every file and link
that is as in the basis, and says in a document which of the basis are gone. Restoring unpacks the inputs anew beside the sealed tree,
proves that they still make the same basis, and moves over what was left out. Folders are sealed always, so nothing is moved through a link.
"""

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner_image.errors import InputError, SealError
from runner_image.inputs import unpack_inputs
from runner_image.places import Places
from runner_image.seals import SealChain
from runner_image.seals.walk import Found, open_file, open_root, walk
from workflow_schemas.plan import InputFile, Limits, Restore, TurnPlan
from workflow_schemas.seal import SealEntry, path_bytes, path_text, tree_sha256

DIFFERENCE = "difference.json"
_HIDDEN = ".basis-being-unpacked-"
_READ_BYTES = 1024 * 1024


class Basis(BaseModel):
    """The workspace as the user's files alone make it."""

    model_config = ConfigDict(frozen=True)

    inputs: tuple[InputFile, ...] = Field(description="The files, in the order in which they were put into the workspace.")
    entries: tuple[SealEntry, ...] = Field(description="The tree they make, without times.")


class _Document(BaseModel):
    """What a seal of the difference says about the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: tuple[InputFile, ...] = Field(description="The files that make the basis.")
    basis_sha256: str = Field(description="Hash of the tree they make.")
    gone: tuple[str, ...] = Field(description="Files and links of the basis that are not in the tree as they were, by path.")


@dataclass(frozen=True)
class Difference:
    """What a workspace has in common with its basis."""

    document: bytes
    """What the seal says about it."""

    inputs: tuple[str, ...]
    """Names of the user's files that the rest comes from."""

    kept: tuple[SealEntry, ...]
    """Files and links that are as in the basis."""

    excluded: Callable[[str], bool]
    """Tells, by path, what the seal leaves out."""

    def whole_tree(self, sealed: Sequence[SealEntry]) -> str:
        """Return the hash of the tree that the sealed entries and the kept ones make."""
        return tree_sha256(sorted((*sealed, *self.kept)))


def note_basis(plan: TurnPlan, places: Places, restored: Basis | None) -> None:
    """Note what this turn's seal may leave out, once the inputs are in the workspace. Blocks.

    A file that is attached under the name of one of the basis takes its place on the platform, so the basis cannot be made again: then the
    whole workspace is sealed.
    """
    noted = places.state / "basis.json"
    if plan.fresh_workspace and plan.restore is None:
        basis = Basis(inputs=plan.inputs, entries=_tree(places.workspace)) if plan.persistence == "diff" and plan.inputs else None
    else:
        basis = restored if plan.fresh_workspace else _recall(noted)
        if basis is not None and {item.name for item in basis.inputs} & {item.name for item in plan.inputs}:
            basis = None
    noted.unlink(missing_ok=True)
    if basis is not None:
        noted.write_text(basis.model_dump_json())


def find_difference(plan: TurnPlan, places: Places) -> Difference | None:
    """Compare the workspace with its basis; None when the whole is to be sealed. Blocks."""
    basis = _recall(places.state / "basis.json") if plan.persistence == "diff" else None
    if basis is None:
        return None
    before = {entry.path: entry for entry in basis.entries if entry.kind != "directory"}
    kept = tuple(entry for entry in _tree(places.workspace, set(before)) if entry == before.get(entry.path))
    same = {entry.path for entry in kept}
    gone = tuple(path for path in before if path not in same)
    document = _Document(inputs=basis.inputs, basis_sha256=tree_sha256(basis.entries), gone=gone)
    names = tuple(item.name for item in basis.inputs)
    return Difference(document.model_dump_json().encode(), names, kept, lambda path: path_text(os.fsencode(path)) in same)


def complete(chain: SealChain, wanted: Restore, limits: Limits, places: Places) -> Basis | None:
    """Add to a restored tree what its seal left out; None when it left out nothing. Blocks.

    Raises:
        SealError: The user's files are not what they were, or the seal contradicts itself; the workspace is empty then.
    """
    if all(extra.name != DIFFERENCE for extra in chain.index.extras):
        return None
    try:
        document = _Document.model_validate_json(chain.extra(DIFFERENCE))
        with _unpacked(document.inputs, wanted, limits, places) as folder:
            entries = _tree(folder)
            if tree_sha256(entries) != document.basis_sha256:
                raise SealError(
                    f"only the difference to the attached files was kept, and {', '.join(repr(item.name) for item in document.inputs)} "
                    "are not any more what they were; attach them as they were in a new conversation, or go back to an earlier turn"
                )
            gone = set(document.gone)
            kept = [entry for entry in entries if entry.kind != "directory" and entry.path not in gone]
            with _writable(chain.index.entries, places.workspace):
                _move(kept, chain.index.entries, folder, places.workspace)
    except (SealError, InputError, OSError, ValidationError) as error:
        with suppress(OSError):  # nothing runs in it, and the next turn empties it with stronger means
            for left in places.workspace.iterdir():
                _remove(left)
        if isinstance(error, SealError):
            raise
        raise SealError(f"the difference of turn {wanted.turn_number} could not be applied: {error}") from error
    return Basis(inputs=document.inputs, entries=entries)


def _recall(noted: Path) -> Basis | None:
    try:
        return Basis.model_validate_json(noted.read_bytes())
    except (OSError, ValidationError):
        return None


def _tree(root: Path, only: set[str] | None = None) -> tuple[SealEntry, ...]:
    """Return what is in a folder, sorted, without times; what has no place in a seal is left out, and what is not asked for not read."""
    top = open_root(root)
    try:
        found = (_entry(one, only) for one in walk(top, None, lambda path, reason: None))
        return tuple(sorted(entry for entry in found if entry is not None))
    finally:
        os.close(top)


def _entry(found: Found, only: set[str] | None) -> SealEntry | None:
    path, mode = path_text(os.fsencode(found.path)), found.status.st_mode
    if only is not None and path not in only:
        return None
    try:
        if stat.S_ISDIR(mode):
            return SealEntry(path, "directory", mode & 0o777, 0, 0, "", 0, 0)
        if stat.S_ISLNK(mode):
            target = path_text(os.fsencode(os.readlink(found.name, dir_fd=found.folder)))
            return SealEntry(path, "symlink", 0o777, 0, 0, target, 0, 0)
        return SealEntry(path, "file", mode & 0o777, 0, 0, _sha256(found), 0, 0)
    except OSError:
        return None  # the seal reads it again and says why it cannot


def _sha256(found: Found) -> str:
    file, hasher = open_file(found), hashlib.sha256()
    try:
        while piece := os.read(file, _READ_BYTES):
            hasher.update(piece)
    finally:
        os.close(file)
    return hasher.hexdigest()


@contextmanager
def _unpacked(inputs: tuple[InputFile, ...], wanted: Restore, limits: Limits, places: Places) -> Iterator[Path]:
    """Unpack the inputs into a hidden folder of the workspace, which is on the file system they are moved on; take it away at the end."""
    mark = _HIDDEN + secrets.token_hex(8)
    folder, store = places.workspace / mark, places.data / mark
    folder.mkdir()
    store.mkdir()
    try:
        for item in inputs:  # linked, because unpacking takes the file away, and this turn may put it into the workspace once more
            if "/" not in item.name:
                os.link(places.data / wanted.inputs.get(item.name, item.name), store / item.name, follow_symlinks=False)
        unpack_inputs(inputs, store, folder, limits)
        yield folder
    finally:
        _remove(store)
        _remove(folder)


@contextmanager
def _writable(sealed: Sequence[SealEntry], workspace: Path) -> Iterator[None]:
    closed = [(workspace / _name(entry), entry.mode) for entry in sealed if entry.kind == "directory" and entry.mode & 0o700 != 0o700]
    for folder, mode in closed:
        folder.chmod(mode | 0o700)
    yield
    for folder, mode in reversed(closed):
        folder.chmod(mode)


def _move(kept: Sequence[SealEntry], sealed: Sequence[SealEntry], origin: Path, workspace: Path) -> None:
    folders = {"", *(entry.path for entry in sealed if entry.kind == "directory")}
    taken = {entry.path for entry in sealed}
    for entry in kept:
        if entry.path.rpartition("/")[0] not in folders or entry.path in taken:
            raise SealError(f"the seal contradicts itself about {entry.path[:200]!r}")
        (origin / _name(entry)).rename(workspace / _name(entry))


def _name(entry: SealEntry) -> str:
    return os.fsdecode(path_bytes(entry.path))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
