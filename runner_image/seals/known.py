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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from runner_image.seals.laying import Stamp
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


def keep(known: KnownSeal, path: Path) -> None:
    """Store a seal's index and stamps for another process of the same sandbox; the place must be out of the agent's reach.

    Blocks. Raises OSError when the file cannot be written; an earlier one is then untouched.
    """
    head = json.dumps({"index_sha256": known.index_sha256, "device": known.device, "stamps": dict(known.stamps)}, separators=(",", ":"))
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(head.encode() + b"\n" + known.index.encoded())
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def recall(path: Path) -> KnownSeal | None:
    """Return what `keep` stored, or None when it is not there or damaged: then the seal is read from its parts. Blocks."""
    try:
        head, _, index = path.read_bytes().partition(b"\n")
        facts = json.loads(head)
        if hashlib.sha256(index).hexdigest() != facts["index_sha256"]:
            return None
        stamps = {name: (inode, size, mtime, ctime) for name, (inode, size, mtime, ctime) in facts["stamps"].items()}
        known = SealIndex.decoded(index)
        return KnownSeal(index=known, index_sha256=facts["index_sha256"], stamps=MappingProxyType(stamps), device=int(facts["device"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


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
