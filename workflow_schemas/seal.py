"""The index of a seal: which entries a workspace had at the end of a turn, and where the bytes of each lie.

A seal holds only what its forerunners in the chain do not; its index always lists the whole tree, so the newest index and the packs of
the chain are enough. The index is read back from the platform and is hostile then: everything that restoring relies on is checked
here, in one place and without touching a disk. The JSON of an index is canonical, so its SHA-256 names the seal.

Names are bytes on Linux and text in JSON, see `path_names`.
"""

import hashlib
import re
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workflow_schemas.path_names import path_bytes as path_bytes  # offered here too: whoever reads an index needs both
from workflow_schemas.path_names import path_text as path_text

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""Content of every empty file; it lies in no pack."""

MAX_PACK_BYTES = 8 * 1024 * 1024
"""Most bytes a pack may hold once it is unpacked; one pack is the unit that is held in memory."""

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4095
MAX_DEPTH = 500
"""Folders above an entry, at most: a walk holds one descriptor for each."""

_SHA256 = r"^[0-9a-f]{64}$"
_IS_SHA256 = re.compile(_SHA256[1:-1])
_PLAIN_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9_.+-]{1,255}")

STEM_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,80}$"
EXTRA_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"


class SealEntry(NamedTuple):
    """One file, link or folder; an array in JSON, because there are thousands."""

    path: str
    """Path below the workspace as `path_text` writes it; no leading slash."""

    kind: Literal["file", "symlink", "directory"]
    """What it is; hard links are files with the same content."""

    mode: Annotated[int, Field(ge=0, le=0o777)]
    """Permission bits; set-user-id, set-group-id and sticky are not kept. Always 0o777 for links."""

    mtime_ns: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    """Time of the last change of the content, in nanoseconds since 1970; no part of the tree's hash."""

    size: Annotated[int, Field(ge=0, lt=2**50)]
    """Size of a file in bytes; 0 for links and folders."""

    content: str
    """SHA-256 of a file's bytes, target of a link as `path_text` writes it, empty for a folder."""

    seal: Annotated[int, Field(ge=0)]
    """Which seal holds the bytes: a position in `SealIndex.chain`, or its length for the seal itself."""

    start: Annotated[int, Field(ge=0, lt=2**50)]
    """Where the bytes begin in that seal's stream, which is its packs end to end."""


class SealReference(BaseModel):
    """An earlier seal of the chain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turn_number: int = Field(ge=0, description="Turn that wrote the seal.")
    index_sha256: str = Field(pattern=_SHA256, description="SHA-256 of the JSON of its index.")


class SealPack(BaseModel):
    """A piece of a seal's stream, one member of one of its parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=_SHA256, description="SHA-256 of the bytes as stored; the member is named after it.")
    codec: Literal["zstd", "raw"] = Field(description="One Zstandard frame, or the bytes themselves where packing does not pay.")
    size_bytes: int = Field(ge=1, le=MAX_PACK_BYTES, description="Size once unpacked.")
    stored_bytes: int = Field(ge=1, le=2 * MAX_PACK_BYTES, description="Size as stored.")
    part: int = Field(ge=1, description="Number of the part that holds it, counted from 1.")


class SealExtra(BaseModel):
    """A document that travels with the seal, such as the transcript."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=EXTRA_PATTERN, description="Name below `seal/extra/`.")
    size_bytes: int = Field(ge=0, description="Size in bytes.")
    sha256: str = Field(pattern=_SHA256, description="SHA-256 of the bytes.")


class LeftOut(NamedTuple):
    """Something that is not in the seal although nobody chose to leave it out."""

    path: str
    """Path below the workspace as `path_text` writes it; `extra:NAME` for a document; empty for a remark about many."""

    reason: str
    """Why, for people."""


class SealHead(BaseModel):
    """What a later seal needs to know of an earlier one; reading it costs a fraction of reading the whole index."""

    model_config = ConfigDict(frozen=True)

    schema_version: Literal["1"] = Field("1", description="Version of this index.")
    turn_number: int = Field(ge=0, description="Turn that wrote the seal.")
    stem: str = Field(pattern=STEM_PATTERN, description="Beginning of the names of its parts.")
    chain: tuple[SealReference, ...] = Field((), max_length=64, description="Seals it needs, oldest first; empty for a full seal.")
    packs: tuple[SealPack, ...] = Field((), description="Stream of this seal, in order.")

    @property
    def parent(self) -> SealReference | None:
        """The seal this one continues, or None for a full one."""
        return self.chain[-1] if self.chain else None

    @property
    def chain_length(self) -> int:
        """Number of seals that restoring needs, this one included."""
        return len(self.chain) + 1

    @property
    def stream_bytes(self) -> int:
        """Length of this seal's own stream."""
        return sum(pack.size_bytes for pack in self.packs)

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Read an index that somebody else may have written.

        Raises:
            ValueError: It is no index, or contradicts itself.
        """
        try:
            return cls.model_validate_json(data, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'index'}: {first['msg']}") from error


class SealIndex(SealHead):
    """Table of contents of one seal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree_sha256: str = Field(pattern=_SHA256, description="Hash of the tree, see `tree_sha256`.")
    entries: tuple[SealEntry, ...] = Field((), description="The whole tree, sorted by path, each path once.")
    extras: tuple[SealExtra, ...] = Field((), description="Documents of the turn.")
    left_out: tuple[LeftOut, ...] = Field((), description="What could not be read or has no place in a seal.")

    def encoded(self) -> bytes:
        """Return the canonical JSON."""
        return self.__pydantic_serializer__.to_json(self)  # model_dump_json would make a text of it first, a megabyte for nothing

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Read an index that somebody else may have written.

        Raises:
            ValueError: It is no index, contradicts itself, or is not in its canonical form.
        """
        index = super().decoded(data)
        if index.encoded() != data:
            raise ValueError("it is not in the canonical form")
        return index

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_places(self.entries)
        _check_contents(self.entries, len(self.chain), self.stream_bytes)
        names = [extra.name for extra in self.extras]
        if len(set(names)) != len(names):
            raise ValueError("two documents have the same name")
        if tree_sha256(self.entries) != self.tree_sha256:
            raise ValueError("the entries do not have the hash of the tree that the index states")
        return self


def tree_sha256(entries: Iterable[SealEntry]) -> str:
    """Hash what makes two trees equal: path, kind, permission bits and content of each entry, sorted by path; no times."""
    hasher, remaining = hashlib.sha256(), iter(entries)
    while piece := [
        f"{kind} {mode:o} {len(content)} {len(path)} {content} {path}\n"
        for path, kind, mode, _, _, content, _, _ in islice(remaining, 256)  # unpacking is three times as fast as naming fields
    ]:
        hasher.update("".join(piece).encode())  # in pieces, because the memory for all of them at once costs more than hashing
    return hasher.hexdigest()


def _check_places(entries: Iterable[SealEntry]) -> None:
    """Every entry lies in a folder of the same tree: so nothing is outside it, and nothing is written through a link."""
    folders: dict[str, int] = {"": -1}
    before = ""
    for path, kind, _, _, _, _, _, _ in entries:
        if path <= before:
            raise ValueError(f"the entry {path[:80]!r} is not in its place in the order, or there twice")
        above, _, name = path.rpartition("/")
        if not _PLAIN_NAME.fullmatch(name):  # nearly every name is plain, and there are thousands
            raw = path_bytes(name)
            if not raw or raw in (b".", b"..") or b"\0" in raw or b"/" in raw or len(raw) > MAX_NAME_BYTES:
                raise ValueError(f"the entry {path[:80]!r} has a name no file can have")
        if above not in folders or folders[above] >= MAX_DEPTH or (not above and "/" in path):
            raise ValueError(f"the entry {path[:80]!r} does not lie in a folder of the tree, or too deep")
        if len(path) > MAX_PATH_BYTES // 4 and len(path_bytes(path)) > MAX_PATH_BYTES:
            raise ValueError(f"the path {path[:80]!r}… is longer than {MAX_PATH_BYTES} bytes")
        if kind == "directory":
            folders[path] = folders[above] + 1
        before = path


def _check_contents(entries: Iterable[SealEntry], own: int, stream_bytes: int) -> None:
    for path, kind, mode, _, size, content, seal, start in entries:
        if kind == "file":
            sound = _IS_SHA256.fullmatch(content) and seal <= own and (size or content == EMPTY_SHA256)
            sound = sound and not (seal == own and size and start + size > stream_bytes)
        elif kind == "symlink":
            target = path_bytes(content)
            sound = 0 < len(target) <= MAX_PATH_BYTES and b"\0" not in target and mode == 0o777 and not (size or seal or start)
        else:
            sound = not (content or size or seal or start)
        if not sound:
            raise ValueError(f"the {kind} {path[:80]!r} contradicts itself")
