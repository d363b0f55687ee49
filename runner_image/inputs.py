"""Puts the user's files into the workspace. Archives are hostile: nothing is written outside, and nothing through a link.

Links that point out of the tree are kept as links (repositories have them); they lead nowhere behind the agent's wall, and nothing
in the runner follows them. In a workspace that is continued the agent may have left links, pipes and hard links as traps: what is in the
way of a file is taken away first, never opened.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

from runner_image.archives import Member, members_of
from runner_image.errors import InputError
from workflow_schemas.plan import InputFile, Limits

_COPY_BYTES = 1024 * 1024
_MAX_DEPTH = 100
_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 3000


def unpack_inputs(inputs: tuple[InputFile, ...], data: Path, workspace: Path, limits: Limits) -> list[str]:
    """Put every input into the workspace and take it out of the file store.

    An archive that is the only archive becomes the workspace itself; its single top-level folder, if it has just one, is stripped.
    Several archives get a folder each, named after the archive. Other files are copied to the top.

    Args:
        inputs: Names in the file store.
        data: The file store.
        workspace: An existing folder.
        limits: Bounds on size and number.

    Returns:
        Remarks for people, one or more per input.

    Raises:
        InputError: An input is missing, damaged, leaves the workspace, or is too large.
    """
    budget = _Budget(limits)
    folders = _folders([item.name for item in inputs if item.kind == "archive"], workspace)
    remarks: list[str] = []
    for item in inputs:
        source = _arrived(item.name, data)
        try:
            if item.kind == "archive":
                remarks += _unpack(item.name, source, folders[item.name], workspace, budget)
            else:
                remarks.append(_copy(item.name, source, workspace, budget))
        except OSError as error:
            raise InputError(f"the input {item.name!r} does not fit into the workspace: {error.strerror or error}") from error
        source.unlink()
    return remarks


class _Budget:
    """Counts what the inputs unpack to."""

    def __init__(self, limits: Limits) -> None:
        self._bytes, self._files = limits.max_unpacked_bytes, limits.max_files
        self._limits = limits

    def spend(self, size: int) -> None:
        self._bytes -= max(0, size)
        self._files -= 1
        if self._bytes < 0:
            raise InputError(f"the inputs unpack to more than {self._limits.max_unpacked_bytes} bytes; send a smaller archive")
        if self._files < 0:
            raise InputError(f"the inputs unpack to more than {self._limits.max_files} files; send a smaller archive")


def _arrived(name: str, data: Path) -> Path:
    """Return an input in the file store; its name is the user's and must not lead out of it."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InputError(f"the input name {name!r} is not the name of a file")
    source = data / name
    try:
        mode = source.lstat().st_mode
    except OSError as error:
        raise InputError(f"the input {name!r} did not arrive in the sandbox") from error
    if not stat.S_ISREG(mode):
        raise InputError(f"the input {name!r} is not a file")
    return source


def _copy(name: str, source: Path, workspace: Path, budget: _Budget) -> str:
    place = workspace / _safe_name(name)
    budget.spend(source.stat().st_size)
    replaced = place.is_symlink() or place.exists()
    with source.open("rb") as content:
        _write(place, workspace, iter(lambda: content.read(_COPY_BYTES), b""), executable=False)
    return f"{name}: copied to /workspace/{place.name}{', in place of what was there' if replaced else ''}"


def _unpack(name: str, source: Path, target: Path, workspace: Path, budget: _Budget) -> list[str]:
    if not source.stat().st_size:
        raise InputError(f"the archive {name!r} is empty (0 bytes)")
    links: dict[Path, str] = {}
    count, left_out = 0, 0
    with closing(members_of(name, source, budget.spend)) as members:
        for member in members:
            place = _place(member, target)
            if place is None:
                continue
            count += member.kind in ("file", "link", "same")
            left_out += member.kind == "other"
            if member.kind in ("file", "same", "folder"):
                links.pop(place, None)
            _put(member, place, target, workspace, links, budget)
    for place, points_to in links.items():
        _make_link(place, points_to, workspace)
    shown = "/workspace" if target == workspace else f"/workspace/{target.name}"
    remarks = [f"{name}: {count} files unpacked into {shown}"]
    if left_out:
        remarks.append(f"{name}: {left_out} devices, pipes or the like have no place in a workspace and were left out")
    return remarks


def _put(member: Member, place: Path, target: Path, workspace: Path, links: dict[Path, str], budget: _Budget) -> None:
    match member.kind:
        case "folder":
            _make_folder(place, workspace)
        case "file":
            _write(place, workspace, member.content, executable=member.executable)
        case "same":
            origin = _place(member, target, of_link=True)
            if origin is None or origin == place:
                raise InputError(f"the archive member {place.name!r} is a hard link to itself")
            _forbid_link(origin, workspace)
            if not origin.is_file():
                raise InputError(f"the archive member {place.name!r} is a hard link to something that is not in the archive")
            budget.spend(origin.stat().st_size)
            with origin.open("rb") as content:
                executable = bool(origin.stat().st_mode & 0o100)
                _write(place, workspace, iter(lambda: content.read(_COPY_BYTES), b""), executable=executable)
        case "link":
            links[place] = member.points_to


def _place(member: Member, target: Path, *, of_link: bool = False) -> Path | None:
    """Return where a member goes, or None for the top folder itself."""
    parts = member.same_as if of_link else member.parts
    if ".." in parts:
        raise InputError(f"the archive holds a name that leaves the workspace: {'/'.join(parts)!r}")
    if any("\0" in part for part in parts):
        raise InputError(f"the archive holds a name with a NUL byte: {'/'.join(parts)!r}")
    if any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in parts):
        raise InputError(f"the archive holds a name longer than {_MAX_NAME_BYTES} bytes: {'/'.join(parts)[:80]!r}…")
    if len(parts) > _MAX_DEPTH or sum(len(os.fsencode(part)) + 1 for part in parts) > _MAX_PATH_BYTES:
        raise InputError(f"the archive holds a path that is too deep or too long: {'/'.join(parts)[:80]!r}…")
    return target.joinpath(*parts) if parts else None


def _make_folder(place: Path, workspace: Path) -> None:
    _forbid_link(place, workspace)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"the inputs hold {place.name!r}, or a folder above it, both as a folder and as a file") from error


def _write(place: Path, workspace: Path, content: Iterator[bytes], *, executable: bool) -> None:
    _clear(place, workspace)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for piece in content:
            file.write(piece)
        os.fchmod(file.fileno(), 0o755 if executable else 0o644)


def _make_link(place: Path, points_to: str, workspace: Path) -> None:
    if "\0" in points_to or not points_to:
        raise InputError(f"the archive holds a link without a target: {place.name!r}")
    if len(os.fsencode(points_to)) > _MAX_PATH_BYTES:
        raise InputError(f"the archive holds a link with a target that is too long: {place.name!r}")
    _clear(place, workspace)
    place.symlink_to(points_to)


def _clear(place: Path, workspace: Path) -> None:
    """Make the folder of a new entry, and take away what is in its place without opening it."""
    _make_folder(place.parent, workspace)
    if place.is_symlink() or not place.is_dir():
        place.unlink(missing_ok=True)
    else:
        raise InputError(f"the inputs hold {place.name!r} both as a folder and as a file or link")


def _forbid_link(place: Path, workspace: Path) -> None:
    """Refuse to go through a link that an earlier input or turn has left."""
    while place not in (workspace, place.parent):
        if place.is_symlink():
            raise InputError(f"the archive writes through the link {place.name!r}")
        place = place.parent


def _folders(names: list[str], workspace: Path) -> dict[str, Path]:
    """Return where each archive goes: the only one to the top, several each into a folder of its own."""
    if len(names) == 1:
        return {names[0]: workspace}
    found: dict[str, Path] = {}
    for name in names:
        stem = _safe_name(name)
        for ending in (".zip", ".tar"):
            stem = stem.removesuffix(ending) or "input"
        folder, number = workspace / stem, 1
        while folder in found.values():
            number += 1
            folder = workspace / f"{stem}-{number}"
        found[name] = folder
    return found


def _safe_name(name: str) -> str:
    cleaned = PurePosixPath(name.replace("\\", "/")).name.replace("\0", "")
    if cleaned in ("", ".", "..", ".git") or len(os.fsencode(cleaned)) > _MAX_NAME_BYTES:
        raise InputError(f"the input name {name[:80]!r} cannot be used in the workspace")
    return cleaned
