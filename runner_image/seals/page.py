"""The index of a seal in pages of a few entries, each with its two texts: the JSON that is stored, and what the tree's hash is made of.

Most pages of a seal are those of the seal before. Writing thousands of entries as text took a fifth of a second seal, and comparing them
takes next to nothing. A page is taken over only when its entries are equal to the new ones, so a text never says anything else than the
entries do.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from pydantic import TypeAdapter

from workflow_schemas.seal import SealEntry, SealIndex

_PAGE_ENTRIES = 16
_MARK = b'"entries":['
_END = b"]"

Measures = Sequence[tuple[int, int, int]]
"""Of each page: how many entries it has, and how many bytes either text."""


class Page(NamedTuple):
    """Consecutive entries of an index."""

    entries: tuple[SealEntry, ...]
    """The entries, in order; at least one."""

    json: bytes
    """They as the index writes them, without a comma at either end."""

    hashed: bytes
    """They as `tree_sha256` takes them."""


def paged(entries: tuple[SealEntry, ...], before: Sequence[Page]) -> list[Page]:
    """Lay a tree out in pages.

    Args:
        entries: The tree, sorted by path.
        before: Pages of another tree. Those that fit are taken over.
    """
    pages: list[Page] = []
    begin = 0
    following = [*(page.entries[0].path for page in before[1:]), None][: len(before)]
    for page, path in zip(before, following, strict=True):
        end = begin + len(page.entries)
        if entries[begin:end] == page.entries:
            pages.append(page)
        else:
            end = len(entries) if path is None else bisect_left(entries, (path,), begin)
            pages += _made(entries[begin:end])
        begin = end
    return [*pages, *_made(entries[begin:])]


def tree_sha256_of(pages: Sequence[Page]) -> str:
    """Return what `tree_sha256` returns for the entries of the pages."""
    return hashlib.sha256(b"".join([page.hashed for page in pages])).hexdigest()


def encoded(index: SealIndex, pages: Sequence[Page]) -> bytes:
    """Return what the index's own `encoded` returns, when its entries are those of the pages."""
    head = index.model_copy(update={"entries": ()}).encoded()
    before, mark, after = head.partition(_MARK)  # no text in JSON has bare quotation marks, so this is the field
    return b"".join((before, mark, b",".join([page.json for page in pages]), after))


def measures_of(pages: Sequence[Page]) -> Measures:
    """Return what `cut` needs beside the texts."""
    return [(len(page.entries), len(page.json), len(page.hashed)) for page in pages]


def cut(index: SealIndex, data: bytes, hashed: bytes, measures: Measures) -> tuple[Page, ...]:
    """Return the pages of an index from its texts.

    Args:
        index: The index.
        data: Its JSON.
        hashed: What `tree_sha256` takes of all its entries.
        measures: What `measures_of` said.

    Raises:
        ValueError: They do not fit each other.
    """
    if hashlib.sha256(hashed).hexdigest() != index.tree_sha256:
        raise ValueError("the text that the tree's hash is made of is another one")
    pages: list[Page] = []
    first, json_begin, hashed_begin = 0, data.index(_MARK) + len(_MARK), 0
    for count, json_size, hashed_size in measures:
        entries = index.entries[first : first + count]
        pages.append(Page(entries, data[json_begin : json_begin + json_size], hashed[hashed_begin : hashed_begin + hashed_size]))
        first, json_begin, hashed_begin = first + count, json_begin + json_size + 1, hashed_begin + hashed_size
    if first != len(index.entries) or hashed_begin != len(hashed) or (pages and data[json_begin - 1 : json_begin] != _END):
        raise ValueError("the pages are not those of the index")
    return tuple(pages)


def _made(entries: tuple[SealEntry, ...]) -> Iterator[Page]:
    for begin, end in pairwise([*range(0, len(entries), _PAGE_ENTRIES), len(entries)]):
        piece = entries[begin:end]
        yield Page(piece, _array().dump_json(piece)[1:-1], _hashed(piece))


@cache
def _array() -> TypeAdapter[tuple[SealEntry, ...]]:
    return TypeAdapter(tuple[SealEntry, ...])


def _hashed(entries: Sequence[SealEntry]) -> bytes:
    lines = [
        f"{kind} {mode:o} {len(content)} {len(path)} {content} {path}\n"  # the line of `tree_sha256`, whose check every reader makes
        for path, kind, mode, _, _, content, _, _ in entries
    ]
    return "".join(lines).encode()
