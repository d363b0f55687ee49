"""Packs a git repository for the agent, and tries a patch out in a fresh clone. Blocking; call it in a thread."""

import io
import subprocess
import tarfile
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
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(repository / ".git", "repository/.git", filter=_nobody)
        for name in names:
            path = repository / name
            if path.is_symlink() or path.exists():
                archive.add(path, f"repository/{name}", filter=_nobody)
    return packed.getvalue()


def applies(repository: Path, patch: bytes, folder: Path) -> tuple[bool, str]:
    """Clone a repository and apply a patch there; return whether it did, and git's words."""
    clone = folder / "clone"
    _git(repository, "clone", "--quiet", "--no-hardlinks", str(repository), str(clone))
    applied = subprocess.run(["git", "-C", str(clone), "apply", "--whitespace=nowarn", "-"], input=patch, capture_output=True, check=False)
    said = (applied.stderr or _git(clone, "status", "--short")).decode(errors="replace").strip()
    return applied.returncode == 0, said


def _git(folder: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        raise PlanRefused(f"{folder} cannot be used as a git repository: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
