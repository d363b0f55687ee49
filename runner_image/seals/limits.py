"""Bounds of a seal: what writing leaves out, and what restoring refuses before a byte is unpacked."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SealLimits:
    """Bounds on the number and size of everything in a seal."""

    max_part_bytes: int = 120_000_000
    """A part stays below this; the platform takes 128 MB."""

    max_chain: int = 8
    """Seals that restoring may need; the seal after the last is a full one."""

    max_entries: int = 250_000
    """Files, links and folders of a tree."""

    max_file_bytes: int = 4 * 1024**3
    """Size of one file; holes count like content."""

    max_tree_bytes: int = 8 * 1024**3
    """Size of all files of a tree together."""

    max_index_bytes: int = 128 * 1024**2
    """Size of the JSON of an index."""


DEFAULT_LIMITS = SealLimits()
"""Bounds for callers that have none of their own."""
