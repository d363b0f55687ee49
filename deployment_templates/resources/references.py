"""The index files of the resource providers: what is not listed there does not exist for the platform.

On an installation that is in use these files hold what was made there since. So these are entries to be merged in, never files to be
uploaded (contract: portals and deployment, trap 6).
"""

from typing import Literal

from pydantic import Field

from deployment_templates.values import PlatformObject

ReferenceType = Literal[
    "generic-agent",
    "basic",
    "workflow",
    "tool",
    "agent-template",
    "multipart",
    "completion",
    "embedding",
    "image-generation",
    "realtime-speech",
    "api-endpoint",
]
"""Kinds of entries; an unknown one stops every listing of its provider."""

REFERENCES = "_resource-references.json"


class ReferenceEntry(PlatformObject):
    """One line of an index."""

    Name: str
    """The resource's name."""
    Filename: str = Field(pattern=r"^/FoundationaLLM\.[A-Za-z]+/[A-Za-z][\w-]*\.json$")
    """Its file, from the root of the container, beginning with a slash."""
    Type: ReferenceType
    """Its kind."""
    Deleted: bool = False
    """Whether it counts as deleted."""


class ReferenceAdditions(PlatformObject):
    """Entries to be merged into an index."""

    ResourceReferences: tuple[ReferenceEntry, ...]
    """The entries."""
