"""Where code sessions live: providers of sandboxes for the embedded Context API."""

from .errors import (
    SandboxEnded,
    SandboxError,
    SandboxesClosed,
    SandboxPoolFull,
    SandboxStartFailed,
    SandboxUnavailable,
)
from .limits import SandboxLimits
from .local import LocalSandboxes, LocalSandboxSettings, SandboxFacts

__all__ = [
    "LocalSandboxSettings",
    "LocalSandboxes",
    "SandboxEnded",
    "SandboxError",
    "SandboxFacts",
    "SandboxLimits",
    "SandboxPoolFull",
    "SandboxStartFailed",
    "SandboxUnavailable",
    "SandboxesClosed",
]
