"""Errors of the shared words.

SchemaError
├── FrameError      a frame of the mailbox is not one of ours
└── DeltaError      a compressed body cannot be rebuilt
"""


class SchemaError(Exception):
    """Something that crossed a border does not have the shape that was agreed on."""


class FrameError(SchemaError):
    """A mailbox frame is damaged, foreign, or too large."""


class DeltaError(SchemaError):
    """A body cannot be rebuilt: its base is missing, or the result has another hash than announced."""
