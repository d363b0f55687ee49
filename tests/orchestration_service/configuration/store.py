"""A stand-in of Azure App Configuration and Key Vault, over TLS: what their clients ask for, with tokens checked."""

import asyncio
import contextlib
import datetime
import hashlib
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import uvicorn
from azure.core.credentials import AccessToken
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

ENDPOINTS = "FoundationaLLM:APIEndpoints"
OURS = f"{ENDPOINTS}:ClaudeCode"
SECRET = "the-key-of-the-service"
TOKEN = "a-token-of-our-identity"
REFERENCE = "application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8"


class Identity:
    """An Azure identity that has been told its token."""

    def __init__(self, token: str = TOKEN) -> None:
        self.token = token

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(self.token, 4_000_000_000)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> "Identity":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@dataclass
class Store:
    """What is in the store and in the vault; change it while it is served."""

    url: str = ""
    values: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    """Keys that lead to a secret of the vault, with its name."""

    failing: int = 0
    """Status that everything is answered with; 0 for none."""

    asked: list[str] = field(default_factory=list)
    """Names of the secrets that were asked for."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[Route("/kv", self._settings), Route("/secrets/{name}", self._secret), Route("/secrets/{name}/", self._secret)]
        )

    async def _settings(self, request: Request) -> Response:
        if refusal := self._refused(request):
            return refusal
        wanted = request.query_params.get("key", "*").split(",")
        items = [self._item(key) for key in sorted({**self.values, **self.references}) if any(fnmatchcase(key, one) for one in wanted)]
        etag = '"' + hashlib.sha256(json.dumps(items).encode()).hexdigest()[:16] + '"'
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={"etag": etag})
        return JSONResponse({"items": items}, headers={"etag": etag}, media_type="application/vnd.microsoft.appconfig.kvset+json")

    def _item(self, key: str) -> dict[str, Any]:
        value, kind = self.values.get(key), ""
        if key in self.references:
            value, kind = json.dumps({"uri": f"{self.url}/secrets/{self.references[key]}"}), REFERENCE
        etag = hashlib.sha256(f"{key}{value}".encode()).hexdigest()[:16]
        return {"key": key, "label": None, "value": value, "content_type": kind, "etag": etag, "tags": {}, "locked": False}

    async def _secret(self, request: Request) -> Response:
        if "authorization" not in request.headers:
            challenge = f'Bearer authorization="{self.url}/tenant", resource="https://vault.azure.net"'
            return Response(status_code=401, headers={"www-authenticate": challenge})
        if refusal := self._refused(request):
            return refusal
        name = request.path_params["name"]
        self.asked.append(name)
        if name not in self.secrets:
            return JSONResponse({"error": {"code": "SecretNotFound", "message": "no such secret"}}, status_code=404)
        return JSONResponse({"id": f"{self.url}/secrets/{name}/1", "value": self.secrets[name], "attributes": {"enabled": True}})

    def _refused(self, request: Request) -> Response | None:
        if self.failing:
            return JSONResponse({"error": {"code": "No", "message": "no"}}, status_code=self.failing)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"error": {"code": "Forbidden", "message": "who are you?"}}, status_code=403)
        return None


@asynccontextmanager
async def serve_store(store: Store, folder: Path) -> AsyncIterator[Path]:
    """Serve a store over TLS until the block ends; yields the certificate to trust."""
    certificate, key = _certificate(folder)
    config = uvicorn.Config(store.app(), port=0, log_level="error", ssl_certfile=certificate, ssl_keyfile=key, lifespan="off")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    store.url = f"https://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield certificate
    finally:
        server.should_exit = True
        await serving


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    signed = built.sign(key, hashes.SHA256())
    paths = folder / "store.crt", folder / "store.key"
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(pem, pkcs8, plain))
    assert ssl.create_default_context(cafile=str(paths[0]))
    return paths
