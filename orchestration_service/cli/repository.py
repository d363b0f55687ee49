"""Packs a git repository for the agent, and tries a patch out in a fresh clone. Blocking; call it in a thread."""

import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from orchestration_service.errors import PlanRefused


def pack(repository: Path) -> bytes:
    """Return a repository as a tar: its history, its tracked files, and untracked files that are not ignored.

    Raises:
        PlanRefused: The folder is no git repository.
    """
    listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = sorted({name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name})
    packed = io.BytesIO()
    with (
        tempfile.TemporaryDirectory(prefix="claude-code-pack-") as folder,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.add(_history(repository, Path(folder)), "repository/.git", filter=_nobody)
        for name in names:
            path = repository / name
            if path.is_symlink() or path.exists():
                archive.add(path, f"repository/{name}", filter=_nobody)
    return packed.getvalue()


def is_clean(repository: Path) -> bool:
    """Whether everything in a repository is committed."""
    return not _git(repository, "status", "--porcelain")


def applies(repository: Path, sent: bytes, patch: bytes, folder: Path) -> tuple[bool, str]:
    """Apply a patch to a fresh clone, or where not everything is committed to a copy of what was sent.

    Returns:
        Whether it did, and git's words.
    """
    copy = folder / "copy"
    if is_clean(repository):
        _git(repository, "clone", "--quiet", "--no-hardlinks", str(repository), str(copy))
    else:
        copy.mkdir()
        # the system's tar keeps links that lead out of the tree; they are the user's own
        subprocess.run(["tar", "-x", "-C", str(copy), "--strip-components=1"], input=sent, check=True)
    applied = subprocess.run(["git", "-C", str(copy), "apply", "--whitespace=nowarn", "-"], input=patch, capture_output=True, check=False)
    said = (applied.stderr or _git(copy, "status", "--short")).decode(errors="replace").strip()
    return applied.returncode == 0, said


def _history(repository: Path, folder: Path) -> Path:
    """Return a .git folder: that of a worktree or a submodule is elsewhere, so a clone's takes its place."""
    own = repository / ".git"
    if own.is_dir():
        return own
    _git(repository, "clone", "--quiet", "--no-hardlinks", "--no-checkout", str(repository), str(folder / "clone"))
    _git(folder / "clone", "reset", "--quiet")
    return folder / "clone" / ".git"


def _git(folder: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        raise PlanRefused(f"{folder} cannot be used as a git repository: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
