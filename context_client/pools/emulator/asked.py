"""A request to the emulated pool, and the checks that come before any sandbox hears of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from context_client.pools.baseline import fact
from context_client.pools.emulator.answers import Refused, Scope
from context_client.pools.identifiers import LONGEST, SHORTEST, identifier_problem
from context_client.pools.local_tokens import token_problem


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def identifier(self) -> str:
        """The session it is for."""
        return self.parameters.get("identifier", "")

    @property
    def target(self) -> bytes:
        """Path and query, for the sandbox."""
        return (f"{self.path}?{self.query}" if self.query else self.path).encode("latin-1")


def read_request(scope: Scope) -> Asked:
    """Read the head of a request."""
    query = scope["query_string"].decode("latin-1")
    raw: Any = scope.get("raw_path") or scope["path"].encode()
    return Asked(
        method=scope["method"],
        path=raw.decode("latin-1").partition("?")[0],
        query=query,
        parameters=dict(parse_qsl(query, keep_blank_values=True)),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
    )


def check(asked: Asked, *, token_key: bytes, now: float, upload_limit_bytes: int) -> None:
    """Refuse what a pool refuses by itself.

    Raises:
        Refused: With the pool's own words.
    """
    scheme, _, token = asked.headers.get("authorization", "").partition(" ")
    problem = "there is none" if scheme.lower() != "bearer" else None
    problem = problem or token_problem(
        token_key, token.strip(), audience=fact("token.audience"), now=now, leeway_seconds=fact("token.leeway_seconds")
    )
    if problem is not None:
        raise Refused(fact("token.refused_status"), "Unauthorized", f"A valid bearer token is required: {problem}.")
    version = asked.parameters.get("api-version")
    if version is not None and version not in fact("api_version.accepted"):
        raise Refused(fact("api_version.unknown_status"), fact("api_version.unknown_code"), f"The api-version {version!r} is not known.")
    _check_identifier(asked.identifier)
    if int(asked.headers.get("content-length") or 0) > upload_limit_bytes:
        raise Refused(fact("limit.upload_status"), "PayloadTooLarge", f"More than {upload_limit_bytes} bytes.")


def _check_identifier(identifier: str) -> None:
    problem = identifier_problem(identifier)
    if problem is None:
        return
    length = "identifier.length_code" if identifier else "identifier.missing_code"
    code = fact("identifier.character_code" if SHORTEST <= len(identifier) <= LONGEST else length)
    raise Refused(fact("identifier.refused_status"), code, f"The identifier is not valid: {problem}.")
