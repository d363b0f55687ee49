"""Seals: the whole workspace at the end of a turn, in archives that hold only what the turns before did not.

`write_seal` makes one, `read_seals` finds the newest among parts in any order, `restore` puts its tree into an empty folder.
Everything in here blocks; the runner calls it in a worker thread.

Names are looked up when they are first used: the second process of a restore enters this package for one light module.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner_image.seals.known import KnownSeal, keep, recall
    from runner_image.seals.limits import SealLimits
    from runner_image.seals.reader import SealChain, read_seals
    from runner_image.seals.restorer import Restored, restore
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

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "KnownSeal": "known",
        "keep": "known",
        "recall": "known",
        "SealLimits": "limits",
        "SealChain": "reader",
        "read_seals": "reader",
        "Restored": "restorer",
        "restore": "restorer",
        "Exclude": "walk",
        "excluding": "walk",
        "hash_tree": "walk",
        "Testimony": "witness",
        "Witness": "witness",
        "witnessing": "witness",
        "Trust": "writer",
        "WrittenSeal": "writer",
        "write_seal": "writer",
    }
)


def __getattr__(name: str) -> object:
    """Find a name of the façade in its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    """List what the façade offers."""
    return sorted(__all__)
