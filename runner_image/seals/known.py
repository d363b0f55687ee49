"""What a process knows about a seal it wrote or read, and which files of this very sandbox need not be read again.

Stamps (inode, size, time of change of the content and of the inode) never travel in a seal. They are made only by a process that has
just read or written the file itself, they hold for one device of one sandbox, and so an index that came from elsewhere can never make
a file pass as unchanged. The inode's time of change cannot be set by anybody, unlike the content's; but files made within one tick of
the clock share it, and the folders they lie in can change places, hence the number of the inode.
"""

import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from runner_image.seals.laying import Stamp
from runner_image.seals.page import Page, cut, encoded, measures_of
from workflow_schemas.seal import SealIndex


def _no_stamps() -> Mapping[str, Stamp]:
    return MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class KnownSeal:
    """A seal that the next one can continue."""

    index: SealIndex
    """Its table of contents."""

    index_sha256: str
    """SHA-256 of the index, which names the seal."""

    stamps: Mapping[str, Stamp] = field(default_factory=_no_stamps, repr=False)
    """Stamp of each file by its path; empty when the seal came from elsewhere."""

    device: int = 0
    """Device that the stamps hold for."""

    pages: Sequence[Page] = field(default=(), repr=False, compare=False)
    """The index in pages, for the texts that the next seal need not write again; empty when it was not written here."""


def keep(known: KnownSeal, path: Path) -> None:
    """Store a seal's index and stamps for another process of the same sandbox; the place must be out of the agent's reach.

    Blocks. Raises OSError when the file cannot be written; an earlier one is then untouched.
    """
    index = encoded(known.index, known.pages) if known.pages else known.index.encoded()
    facts = {
        "index_sha256": known.index_sha256,
        "index_bytes": len(index),
        "device": known.device,
        "stamps": dict(known.stamps),
        "pages": measures_of(known.pages),
    }
    head = json.dumps(facts, separators=(",", ":")).encode()
    lines = (hashlib.sha256(head).hexdigest().encode(), head, index)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(b"\n".join(lines))
            file.writelines(page.hashed for page in known.pages)
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def recall(path: Path) -> KnownSeal | None:
    """Return what `keep` stored, or None when it is not there or damaged: then the seal is read from its parts. Blocks."""
    try:
        proof, head, texts = path.read_bytes().split(b"\n", 2)
        facts = json.loads(head)
        data, hashed = texts[: facts["index_bytes"]], texts[facts["index_bytes"] :]
        if hashlib.sha256(head).hexdigest().encode() != proof or hashlib.sha256(data).hexdigest() != facts["index_sha256"]:
            return None
        index = SealIndex.decoded(data)
        return KnownSeal(
            index=index,
            index_sha256=facts["index_sha256"],
            stamps={name: _stamp(values) for name, values in facts["stamps"].items()},
            device=int(facts["device"]),
            pages=cut(index, data, hashed, facts["pages"]) if facts["pages"] else (),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _stamp(values: list[int]) -> Stamp:
    inode, size, mtime, ctime, mode = values
    return inode, size, mtime, ctime, mode


def records_mapped_writes(folder: int) -> bool:
    """Tell whether a file system notes the time when a file is written through a memory map; tmpfs does not.

    Args:
        folder: Descriptor of a folder on it.
    """
    try:
        file = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError:
        return False
    try:
        os.write(file, b"a")
        os.utime(file, ns=(0, 0))
        with mmap.mmap(file, 1) as page:
            page[0:1] = page[0:1].upper()  # read first: on tmpfs a page that was read is writable without a fault, hence unnoticed
            page.flush()
        return os.fstat(file).st_mtime_ns != 0
    except OSError:
        return False
    finally:
        os.close(file)
