"""Sandboxes as containers of Docker: one per user and session, without network, without a writable byte of the host.

The engine's client library is the extra `containers`; it is imported when the provider is entered, not before.
"""

from .errors import EngineRefused, EngineSilent, SandboxMismatch
from .provider import ContainerSandboxes
from .settings import ContainerFacts, ContainerLimits, ContainerSandboxSettings

__all__ = [
    "ContainerFacts",
    "ContainerLimits",
    "ContainerSandboxSettings",
    "ContainerSandboxes",
    "EngineRefused",
    "EngineSilent",
    "SandboxMismatch",
]
