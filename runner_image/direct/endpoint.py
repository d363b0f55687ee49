"""Where the direct path finds its model: read from the caller's environment, with the names the CLI itself knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from runner_image.direct.errors import EndpointUnusable

_PUBLIC = "https://api.anthropic.com"
_ANY_HOST = "http://model.internal"  # over a Unix socket the host's name means nothing

WHAT_TO_SET = (
    "Set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and for a gateway ANTHROPIC_BASE_URL, or ANTHROPIC_UNIX_SOCKET for one on this machine."
)
"""What a caller is told who configured no model."""


@dataclass(frozen=True, kw_only=True)
class ModelEndpoint:
    """A Messages API and how to be let in; holds the key, so it must not cross the wall."""

    base_url: str
    """Address before `/v1/messages`, without a slash at the end."""

    unix_socket: Path | None = None
    """Socket to connect to instead of the address's host."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers with the credentials."""

    @property
    def name(self) -> str:
        """What may be shown of the address."""
        return f"unix socket {str(self.unix_socket)!r}" if self.unix_socket else self.base_url


def find_endpoint(environment: Mapping[str, str]) -> ModelEndpoint:
    """Read the endpoint from environment variables.

    Raises:
        EndpointUnusable: Nothing is configured, or an address makes no sense; the message says what to set.
    """
    key, token = environment.get("ANTHROPIC_API_KEY", ""), environment.get("ANTHROPIC_AUTH_TOKEN", "")
    address, unix_socket = environment.get("ANTHROPIC_BASE_URL", ""), environment.get("ANTHROPIC_UNIX_SOCKET", "")
    if not (key or token or address or unix_socket):
        raise EndpointUnusable(f"No model endpoint is configured. {WHAT_TO_SET}")
    headers = _custom_headers(environment.get("ANTHROPIC_CUSTOM_HEADERS", ""))
    if key:
        headers["x-api-key"] = _header_value("ANTHROPIC_API_KEY", key)
    if token:
        headers["authorization"] = f"Bearer {_header_value('ANTHROPIC_AUTH_TOKEN', token)}"
    default = _ANY_HOST if unix_socket else _PUBLIC
    return ModelEndpoint(
        base_url=_checked_address(address or default),
        unix_socket=Path(unix_socket) if unix_socket else None,
        headers=headers,
    )


def _checked_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises where the port is no number
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        # the value is not shown: people put keys into addresses
        raise EndpointUnusable(
            "ANTHROPIC_BASE_URL is not an address like 'https://host/path', without credentials, query and fragment. Correct or unset it."
        )
    return address.rstrip("/")


def _custom_headers(text: str) -> dict[str, str]:
    headers = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            raise EndpointUnusable("ANTHROPIC_CUSTOM_HEADERS must hold one 'Name: value' per line. Correct or unset it.")
        if colon:
            headers[name.strip().lower()] = _header_value("ANTHROPIC_CUSTOM_HEADERS", value.strip())
    return headers


def _header_value(variable: str, value: str) -> str:
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise EndpointUnusable(f"{variable} holds characters that no HTTP header may have. Set it anew.")
    return value
