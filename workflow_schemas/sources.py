"""The digest of the code that has to be the same on both ends of the mailbox.

An image carries a copy of `runner_image` and `workflow_schemas`. It tells the digest of that copy, the service computes the one of
its own, and a difference is refused before a turn instead of being discovered in the middle of one.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("runner_image", "workflow_schemas")
"""What an image carries; both lie beside each other in a checkout, in a wheel and in an image."""

_SUFFIXES = (".py", ".json")
_BUILD = "image"  # below runner_image: how an image is built is told by the image's own id


def sources_digest(folder: Path) -> str:
    """Return the digest of the code that both ends share; reads some 90 small files.

    Args:
        folder: Where the two packages lie.

    Raises:
        OSError: A file cannot be read.
    """
    total = hashlib.sha256()
    for name, path in sorted(_files(folder)):
        total.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n".encode())
    return f"sha256:{total.hexdigest()}"


def own_sources() -> Path:
    """Return the folder that this code itself was loaded from."""
    return Path(__file__).resolve().parents[1]


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in (folder / package).rglob("*"):
            parts = path.relative_to(folder).parts
            if path.suffix in _SUFFIXES and path.is_file() and parts[1] != _BUILD:
                yield "/".join(parts), path
