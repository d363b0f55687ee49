"""Git repositories for journeys: what real ones hold that simple tools trip over."""

import io
import subprocess
import tarfile
from pathlib import Path

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Robin",
    "GIT_AUTHOR_EMAIL": "robin@example.com",
    "GIT_COMMITTER_NAME": "Robin",
    "GIT_COMMITTER_EMAIL": "robin@example.com",
    "GIT_AUTHOR_DATE": "2026-01-12T09:30:00+00:00",
    "GIT_COMMITTER_DATE": "2026-01-12T09:30:00+00:00",
    "LC_ALL": "C",
}

BINARY = bytes(range(256)) * 40

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)

CHANGES = r"""
printf 'third\r\n' >> windows.txt
printf '\377\000x' >> picture.bin
rm empty
chmod -x 'run me.sh'
mv 'src/déjà vu.txt' new.txt
ln -sf /etc/shadow outside
"""
"""What a command of the agent does to the repository."""

OUTPUTS = f"""
import zipfile
from pathlib import Path

outputs = Path("/outputs")
(outputs / "plot.png").write_bytes(bytes.fromhex("{PICTURE.hex()}"))
(outputs / "report.html").write_text("<b>report</b>")
(outputs / "core").write_text("core")
(outputs / "mislabelled.png").write_text("no picture")
with zipfile.ZipFile(outputs / "table.xlsx", "w") as table:
    table.writestr("[Content_Types].xml", "<Types/>")
    table.writestr("xl/workbook.xml", "<workbook/>")
raise SystemExit(3)
"""
"""What a command of the agent makes for the user, before it fails."""


def git(folder: Path, *arguments: str, given: bytes | None = None) -> str:
    """Run git on a folder, with nobody's configuration."""
    line = ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", "-C", str(folder), *arguments]
    done = subprocess.run(line, env=ENVIRONMENT, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def awkward_repository(folder: Path) -> Path:
    """Make a repository with spaces and accents in names, a binary, CRLF, a link out of the tree, and a submodule."""
    library, repository = folder / "library", folder / "my repository"
    for place in (library, repository):
        place.mkdir()
        git(place, "init", "-q", "--template=")
    (library / "lib.py").write_text("VALUE = 7\n")
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "Library")
    contents: dict[str, bytes] = {
        "src/main file.py": b'"""Main."""\n\nGREETING = "helo"\n\n\ndef greet() -> str:\n    return GREETING\n',
        "src/déjà vu.txt": "déjà\n".encode(),
        "windows.txt": b"first\r\nsecond\r\n",
        "picture.bin": BINARY,
        "run me.sh": b"#!/bin/sh\necho hello\n",
        "empty": b"",
        ".gitignore": b"*.log\n",
        "tools/change.sh": CHANGES.encode(),
        "tools/outputs.py": OUTPUTS.encode(),
    }
    for name, content in contents.items():
        path = repository / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    (repository / "run me.sh").chmod(0o755)
    (repository / "outside").symlink_to("/etc/passwd")
    (repository / "inside").symlink_to("src/main file.py")
    git(repository, "submodule", "--quiet", "add", str(library), "vendor/library")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "Start")
    return repository


def pack_folder(folder: Path, top: str) -> bytes:
    """Return a folder as a tar, everything below one top folder."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(folder, top)
    return target.getvalue()


def tree_after(repository: Path, patch: bytes, folder: Path) -> str:
    """Apply a patch in a fresh clone and return the hash of the tree that comes of it."""
    clone = folder / "clone"
    git(repository, "clone", "-q", "--no-hardlinks", str(repository), str(clone))
    git(clone, "apply", "--index", "--whitespace=nowarn", "-", given=patch)
    return git(clone, "write-tree").strip()
