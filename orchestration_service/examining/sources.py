"""Whom an examination asks: the places of a deployment, the service, the session pool, and Azure about that pool."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from deployment_templates.profile import Profile
from orchestration_service.deploying.errors import ProfileRefused
from orchestration_service.deploying.identity import Token, open_identity
from orchestration_service.deploying.installation import Places, open_places

POOL_SCOPE = "https://dynamicsessions.io/.default"
"""What a token for session pools is asked for."""
AZURE_URL = "https://management.azure.com"
"""Where Azure tells about the pool itself."""
AZURE_SCOPE = "https://management.azure.com/.default"
"""What a token for that is asked for."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """All of them. Only asked, never written to."""

    places: Places
    """Management API, App Configuration, Key Vault and container of resources."""

    pool_token: Token
    """Opens session pools."""

    azure_token: Token
    """Opens Azure's own interface."""

    azure_url: str = AZURE_URL
    """Where that is."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an operator says beside the profile.

    Raises:
        ProfileRefused: It is no address, or no resource id.
    """

    service_url: str | None = None
    """Where the service is reached from here, where that is not the profile's address."""

    pool_id: str | None = None
    """Azure resource id of the session pool."""

    def __post_init__(self) -> None:
        if self.service_url is not None and not re.fullmatch(r"https?://[^/?#@\s]+/?", self.service_url):
            raise ProfileRefused(f"--service-url is {self.service_url!r}: give scheme and host only, such as http://127.0.0.1:8000.")
        if self.pool_id is not None and not re.fullmatch(r"/?subscriptions(/[\w.()-]+)+/sessionPools/[\w-]+", self.pool_id):
            raise ProfileRefused(
                f"--pool-id is {self.pool_id!r}: give the pool's resource id, "
                "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.App/sessionPools/NAME."
            )


@asynccontextmanager
async def open_sources(profile: Profile) -> AsyncIterator[Sources]:
    """Open everything as whoever runs the command; nothing is asked of anybody yet."""
    async with open_identity() as who, open_places(profile, credential=who) as places:
        yield Sources(places=places, pool_token=Token(who, POOL_SCOPE), azure_token=Token(who, AZURE_SCOPE))
