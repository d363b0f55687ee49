"""What runs here, in words that the service compares with its own before it begins a turn."""

import importlib.metadata
import os
import platform
from dataclasses import asdict, dataclass

from workflow_schemas.sources import own_sources, sources_digest


@dataclass(frozen=True, kw_only=True)
class ServerVersion:
    """The answer of `GET /version`."""

    version: str
    """Version of this project, or "unknown" in a checkout that was bound in without its metadata."""

    source_digest: str
    """Digest of the code that the service must have too, see `workflow_schemas.sources`."""

    agent_sdk: str
    """Version of the Claude Agent SDK, which brings the CLI along; empty where there is none."""

    python: str
    """Version of the interpreter that runs executions."""

    image: str
    """Variant of the image, or empty outside one."""

    def to_wire(self) -> dict[str, str]:
        """Give the fields as JSON values."""
        return asdict(self)


def read_version() -> ServerVersion:
    """Look at what is installed here; blocks for some milliseconds.

    Raises:
        OSError: A file of the sources cannot be read.
    """
    return ServerVersion(
        version=os.environ.get("CLAUDE_CODE_VERSION") or _installed("foundationallm-claude-code") or "unknown",
        source_digest=sources_digest(own_sources()),
        agent_sdk=_installed("claude-agent-sdk"),
        python=platform.python_version(),
        image=os.environ.get("CLAUDE_CODE_IMAGE_VARIANT", ""),
    )


def _installed(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
