"""Endpoint overrides: a caller names the address of the sandbox.

On a shared server that is an invitation to reach whatever the server can reach, so by default only loopback addresses
are taken, and others are refused with words instead of tried.
"""

import ipaddress

import httpx

from context_client.embedded.provider import SandboxEndpoint
from context_client.size import SandboxSize

_TIMEOUT_SECONDS = 100.0


class OverrideProvider:
    """The sandbox at a caller's own address: plain calls, no version, no token, a shorter wait."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = SandboxEndpoint(base_url=endpoint, timeout_seconds=_TIMEOUT_SECONDS)

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        """Give the address, whoever asks; how large it is, its owner has decided."""
        return self._endpoint


def override_host_problem(endpoint: str, override_hosts: str) -> str | None:
    """Say why an address may not be used, or None if it may.

    The address is read by the library that will connect to it, so that there are no two opinions about its host.
    """
    try:
        url = httpx.URL(endpoint)
    except (httpx.InvalidURL, UnicodeError):
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host:
        return f"endpoint_provider_override.endpoint {endpoint[:200]!r} is not an absolute http(s) URL"
    if override_hosts == "any" or (override_hosts == "loopback" and _is_loopback(url.host)):
        return None
    return (
        f"endpoint_provider_override.endpoint names host {url.host[:200]!r}; this server takes {override_hosts} hosts "
        "only (setting override_hosts)"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
