"""Puts the user's files into the workspace. Archives are hostile: nothing is written outside, and nothing through a link.

Links that point out of the tree are kept as links (repositories have them); they lead nowhere behind the agent's wall, and nothing
in the runner follows them.
"""

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from runner_image.errors import InputError
from workflow_schemas.plan import InputFile, Limits

_COPY_BYTES = 1024 * 1024


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
        One remark for people per input.

    Raises:
        InputError: An input is missing, damaged, leaves the workspace, or is too large.
    """
    budget = _Budget(limits)
    archives = [item for item in inputs if item.kind == "archive"]
    remarks = []
    for item in inputs:
        source = data / item.name
        if not source.is_file() or source.is_symlink():
            raise InputError(f"the input {item.name!r} did not arrive in the sandbox")
        if item.kind == "archive":
            target = workspace if len(archives) == 1 else workspace / _folder_name(item.name)
            count = _unpack(source, target, budget)
            remarks.append(f"{item.name}: {count} files unpacked into {_shown(target, workspace)}")
        else:
            target = workspace / _safe_name(item.name)
            budget.spend(source.stat().st_size)
            _forbid_link(target, workspace)
            shutil.copyfile(source, target)
            remarks.append(f"{item.name}: copied to /workspace/{target.name}")
        source.unlink()
    return remarks


class _Budget:
    """Counts what the inputs unpack to."""

    def __init__(self, limits: Limits) -> None:
        self._bytes, self._files = limits.max_unpacked_bytes, limits.max_files
        self._limits = limits

    def spend(self, size: int) -> None:
        self._bytes -= size
        self._files -= 1
        if self._bytes < 0:
            raise InputError(f"the inputs unpack to more than {self._limits.max_unpacked_bytes} bytes; send a smaller archive")
        if self._files < 0:
            raise InputError(f"the inputs unpack to more than {self._limits.max_files} files; send a smaller archive")


def _unpack(source: Path, target: Path, budget: _Budget) -> int:
    try:
        if zipfile.is_zipfile(source) and not tarfile.is_tarfile(source):
            with zipfile.ZipFile(source) as archive:
                return _unpack_zip(archive, target, budget)
        with tarfile.open(source) as archive:
            return _unpack_tar(archive, target, budget)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise InputError(f"the archive {source.name!r} is damaged or of a kind that cannot be read: {error}") from error
    except RuntimeError as error:
        raise InputError(f"the archive {source.name!r} cannot be read (is it encrypted?): {error}") from error
    except OSError as error:
        raise InputError(f"the archive {source.name!r} does not fit into the workspace: {error.strerror or error}") from error


def _unpack_tar(archive: tarfile.TarFile, target: Path, budget: _Budget) -> int:
    members = archive.getmembers()
    top = _single_top([member.name for member in members])
    links: list[tuple[Path, str]] = []
    count = 0
    for member in members:
        place = _place(member.name, top, target)
        if place is None:
            continue
        if member.isdir():
            _make_folder(place, target)
        elif member.isreg():
            budget.spend(member.size)
            content = archive.extractfile(member)
            if content is None:
                raise InputError(f"the archive member {member.name!r} has no content")
            _write(place, target, iter(lambda stream=content: stream.read(_COPY_BYTES), b""), member.mode)  # type: ignore[misc]
            count += 1
        elif member.islnk():
            origin = _place(member.linkname, top, target)
            if origin is None or not origin.is_file() or origin.is_symlink():
                raise InputError(f"the archive member {member.name!r} is a hard link to something outside the archive")
            budget.spend(origin.stat().st_size)
            _write(place, target, iter([origin.read_bytes()]), origin.stat().st_mode)
            count += 1
        elif member.issym():
            budget.spend(0)
            links.append((place, member.linkname))
            count += 1
        # devices, pipes and the like have no place in a workspace and are left out
    _make_links(links, target)
    return count


def _unpack_zip(archive: zipfile.ZipFile, target: Path, budget: _Budget) -> int:
    top = _single_top([item.filename for item in archive.infolist()])
    links: list[tuple[Path, str]] = []
    count = 0
    for item in archive.infolist():
        place = _place(item.filename, top, target)
        if place is None:
            continue
        mode = item.external_attr >> 16
        if item.is_dir():
            _make_folder(place, target)
            continue
        count += 1
        if stat.S_ISLNK(mode):
            budget.spend(0)
            links.append((place, os.fsdecode(archive.read(item)[:4096])))
            continue
        budget.spend(item.file_size)
        with archive.open(item) as content:
            _write(place, target, iter(lambda stream=content: stream.read(_COPY_BYTES), b""), mode or 0o644)  # type: ignore[misc]
    _make_links(links, target)
    return count


def _single_top(names: list[str]) -> str:
    """Return the one folder that everything lies in, or an empty string."""
    parts = [PurePosixPath(name).parts for name in names]
    parts = [part[1:] if part[:1] == ("/",) else part for part in parts if part and part != (".",)]
    tops = {part[0] for part in parts if part}
    return tops.pop() if len(tops) == 1 and any(len(part) > 1 for part in parts) and ".git" not in tops else ""


def _place(name: str, top: str, target: Path) -> Path | None:
    """Return where a member goes, or None for the top folder itself."""
    if "\0" in name:
        raise InputError(f"the archive holds a name with a NUL byte: {name!r}")
    parts = [part for part in PurePosixPath(name.replace("\\", "/") if "/" not in name else name).parts if part not in (".", "/")]
    if ".." in parts:
        raise InputError(f"the archive holds a name that leaves the workspace: {name!r}")
    if top and parts[:1] == [top]:
        parts = parts[1:]
    if not parts:
        return None
    if any(len(os.fsencode(part)) > 255 for part in parts):
        raise InputError(f"the archive holds a name longer than 255 bytes: {name[:80]!r}…")
    return target.joinpath(*parts)


def _make_folder(place: Path, target: Path) -> None:
    _forbid_link(place, target)
    place.mkdir(parents=True, exist_ok=True)


def _write(place: Path, target: Path, content: Iterator[bytes], mode: int) -> None:
    _forbid_link(place, target)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        raise InputError(f"the archive holds {place.name!r} both as a folder and as a file")
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for piece in content:
            file.write(piece)
        os.fchmod(file.fileno(), 0o755 if mode & 0o111 else 0o644)


def _make_links(links: list[tuple[Path, str]], target: Path) -> None:
    for place, points_to in links:
        _forbid_link(place.parent, target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink() or place.is_file():
            place.unlink()
        if "\0" in points_to or not points_to:
            raise InputError(f"the archive holds a link without a target: {place.name!r}")
        place.symlink_to(points_to)


def _forbid_link(place: Path, target: Path) -> None:
    """Refuse to write through a link that an earlier input has left."""
    while place != target and place != place.parent:
        if place.is_symlink():
            raise InputError(f"the archive writes through the link {place.name!r}")
        place = place.parent


def _safe_name(name: str) -> str:
    cleaned = PurePosixPath(name.replace("\\", "/")).name.replace("\0", "")
    if cleaned in ("", ".", "..", ".git"):
        raise InputError(f"the input name {name!r} cannot be used in the workspace")
    return cleaned


def _folder_name(name: str) -> str:
    stem = _safe_name(name)
    for ending in (".tar.gz", ".tgz", ".tar", ".zip"):
        stem = stem.removesuffix(ending)
    return stem or "input"


def _shown(target: Path, workspace: Path) -> str:
    return "/workspace" if target == workspace else f"/workspace/{target.name}"
