"""Seals: the whole workspace at the end of a turn, in archives that hold only what the turns before did not.

`write_seal` makes one, `read_seals` finds the newest among parts in any order, `restore` puts its tree into an empty folder.
Everything in here blocks; the runner calls it in a worker thread.
"""

from runner_image.seals.known import KnownSeal, keep, recall
from runner_image.seals.limits import SealLimits
from runner_image.seals.reader import SealChain, read_seals
from runner_image.seals.restore import Restored, restore
from runner_image.seals.walk import Exclude, excluding, hash_tree
from runner_image.seals.witness import Testimony, Witness, witnessing
from runner_image.seals.writer import Trust, WrittenSeal, write_seal

__all__ = [
    "Exclude",
    "KnownSeal",
    "Restored",
    "SealChain",
    "SealLimits",
    "Testimony",
    "Trust",
    "Witness",
    "WrittenSeal",
    "excluding",
    "hash_tree",
    "keep",
    "read_seals",
    "recall",
    "restore",
    "witnessing",
    "write_seal",
]
