"""A stand-in of Google Vertex AI, and of the token services of Google Cloud."""

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tests.orchestration_service.brokers.standins.provider import Denied, Event, Provider, sse

PROJECT, REGION = "our-project", "europe-west1"
ACCOUNT = "agent@our-project.iam.gserviceaccount.com"
CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_AUDIENCE = "https://oauth2.googleapis.com/token"  # whatever the address it is sent to
_PATH = re.compile(rf"/v1/projects/{PROJECT}/locations/{REGION}/publishers/anthropic/models/([^/:]+):(streamRawPredict|rawPredict)\Z")
_STATUS = {
    "throttled": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "not_found": "NOT_FOUND",
    "unauthorized": "UNAUTHENTICATED",
    "invalid": "INVALID_ARGUMENT",
}


@dataclass
class Vertex(Provider):
    """Takes tokens that Google's token services gave out."""

    tokens: set[str] = field(default_factory=set)
    """Tokens that were given out."""

    def check(self, request: Request, path: str, body: bytes) -> None:
        """Look for the token."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens or "x-api-key" in request.headers:
            raise Denied(self.error(401, "unauthorized", f"Request had invalid authentication credentials: {token}"))

    def model_of(self, request: Request, path: str, body: dict[str, Any]) -> str:
        """The model is in the path; only a count has it in the body. The version is in the body."""
        found = _PATH.match(path)
        assert found is not None, path
        assert body["anthropic_version"] == "vertex-2023-10-16"
        if found.group(1) == "count-tokens":
            return str(body["model"])
        assert (found.group(2), body["stream"], "model" in body) == ("streamRawPredict", True, False)
        return found.group(1)

    def frame(self, event: Event) -> bytes:
        """Server-sent events."""
        return sse(event)

    def error(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
        """Google's shape, in a list since a stream was asked for; a refusal of the model comes in the model's."""
        if kind == "invalid":
            return JSONResponse({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, status)
        return JSONResponse([{"error": {"code": status, "message": message, "status": _STATUS[kind]}}], status, headers)

    def overloaded(self) -> Response:
        """Claude on Vertex is overloaded in its own words."""
        return JSONResponse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529)

    def inner_error(self) -> bytes:
        """An event of its own."""
        return sse({"type": "error", "error": {"type": "overloaded_error", "message": "no room inside"}})


@dataclass
class GoogleTokens:
    """Gives tokens for assertions signed by a service account, and for tokens of a workload that is known elsewhere."""

    tokens: set[str]
    """Gets the tokens that are given out."""
    address: str = ""
    """Where it is asked; set when it is served."""
    workload_token: str = "token-of-the-workload"
    """What a workload proves itself with."""
    lifetime_seconds: int = 3600
    """How long tokens are good."""
    asked: int = 0
    """How often it was asked."""
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))
    """The service account's key; its public half is Google's."""

    def key_file(self, key: rsa.RSAPrivateKey | None = None) -> dict[str, str]:
        """Give the service account's key as Google gives it out; or one that is not the account's."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        private = (key or self.key).private_bytes(*form).decode()
        told = {"type": "service_account", "project_id": PROJECT, "private_key_id": "1", "client_email": ACCOUNT, "client_id": "1"}
        return {**told, "private_key": private, "token_uri": self.address}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a grant."""
        if scope["type"] != "http":
            return
        self.asked += 1
        form = {name: values[0] for name, values in parse_qs((await Request(scope, receive).body()).decode()).items()}
        granted = self._signed(form) if form["grant_type"].endswith("jwt-bearer") else self._exchanged(form)
        if not granted:
            await JSONResponse({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400)(scope, receive, send)
            return
        token = f"ya29.token-number-{len(self.tokens)}"
        self.tokens.add(token)
        answer = {"access_token": token, "expires_in": self.lifetime_seconds, "token_type": "Bearer"}
        kind = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        await JSONResponse({**answer, **kind})(scope, receive, send)

    def _signed(self, form: dict[str, str]) -> bool:
        try:
            claims = jwt.decode(
                form["assertion"], self.key.public_key(), ["RS256"], audience="https://oauth2.googleapis.com/token", issuer=ACCOUNT
            )
        except jwt.InvalidTokenError:
            return False
        return CLOUD_SCOPE in claims["scope"].split() and 0 < claims["exp"] - claims["iat"] <= 3600 and claims["iat"] <= time.time() + 60

    def _exchanged(self, form: dict[str, str]) -> bool:
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        return (form["subject_token"], form["scope"]) == (self.workload_token, CLOUD_SCOPE)


def federation(address: str, token_file: str) -> str:
    """Give the file by which a workload outside Google Cloud finds out how to prove itself."""
    pool = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/cluster"
    kind = "urn:ietf:params:oauth:token-type:jwt"
    told = {"type": "external_account", "audience": pool, "subject_token_type": kind, "token_url": address}
    return json.dumps({**told, "credential_source": {"file": token_file}})
