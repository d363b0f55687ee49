"""The port to the places where sandboxes live.

The server speaks one protocol to every sandbox (the container's five routes). All it asks of a provider is: where is
the endpoint of this session, and what must travel with each call so that it lets us in?
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from context_client.size import SandboxSize

DEFAULT_PROVIDER_NAME = "AzureContainerAppsCustomContainer"
"""The wire name that stock agents ask for; an embedded server answers it with whatever provider it was given."""

DEFAULT_TIMEOUT_SECONDS = 600.0
"""What the platform grants one call to a session pool."""


@dataclass(frozen=True, kw_only=True)
class SandboxEndpoint:
    """Where the five routes of one sandbox are, and how to be let in."""

    base_url: str
    """Absolute http(s) URL in front of `/files` and `/code`; a trailing slash is tolerated."""

    transport: httpx.AsyncBaseTransport | None = None
    """How bytes get there (a Unix socket, an app in process); `None` means plain TCP. The server closes it when it
    forgets the endpoint, so a provider must give each endpoint a transport of its own."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers for every call, such as a bearer token; never logged."""

    params: Mapping[str, str] = field(default_factory=dict)
    """Query parameters for every call, besides the `identifier` that the server adds itself."""

    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """How long one call may take from start to end of the answer."""

    size: SandboxSize | None = None
    """What the sandbox behind it may use, each part as far as the provider holds it to that; None where others decide."""


class SandboxProvider(Protocol):
    """Answers where the sandbox of a session is, and starts it on first use."""

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        """Find the endpoint of a session, starting its sandbox if there is none.

        Called before every use and never at create time, so it should be quick for a sandbox that runs. The server
        keeps one connection per returned value: as long as an equal object comes back the connection is reused;
        return a new object (new address or transport) when the sandbox was replaced, and the old one is closed.

        Args:
            session_id: The code session's id, hostile text up to 128 characters.
            upn: The caller, exactly as in the identity header.
            size: What a sandbox that is started now shall have; one that runs keeps what it has, and its endpoint says so.

        Raises:
            Exception: Anything; the caller then sees that its sandbox could not be reached, with this message.
        """
        ...
