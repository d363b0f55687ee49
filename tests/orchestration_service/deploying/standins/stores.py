"""A stand-in of App Configuration and Key Vault that can be written to: states and conditions, soft-deleted secrets."""

import json
from dataclasses import dataclass, field
from typing import Any

from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.orchestration_service.configuration.store import TOKEN
from tests.orchestration_service.deploying.standins.faults import Faults

MANAGEMENT_TOKEN = "a-token-for-the-management-api"
KV = "application/vnd.microsoft.appconfig.kv+json"


class Operator:
    """An Azure identity with one token for the Management API and another one for everything else."""

    def __init__(self, management: str = MANAGEMENT_TOKEN, other: str = TOKEN) -> None:
        self.management, self.other = management, other

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        if not self.management:
            raise ClientAuthenticationError("nobody is signed in")
        is_management = scopes == ("api://FoundationaLLM-Management/.default",)
        return AccessToken(self.management if is_management else self.other, 4_000_000_000)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> "Operator":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@dataclass
class Stores:
    """Both, behind one address."""

    faults: Faults
    url: str = ""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    deleted_secrets: dict[str, str] = field(default_factory=dict)
    version: int = 0
    before_put: Any = None
    """Called once with a key before an entry is written: somebody else's chance."""

    def set(self, key: str, value: str, content_type: str = "") -> None:
        self.version += 1
        self.settings[key] = {"value": value, "content_type": content_type, "etag": f"v{self.version}"}

    def app(self) -> Starlette:
        methods = ["GET", "PUT", "DELETE"]
        return Starlette(
            routes=[
                Route("/kv/{key:path}", self._setting, methods=methods),
                Route("/secrets/{name}", self._secret, methods=methods),
                Route("/secrets/{name}/", self._secret, methods=methods),
                Route("/deletedsecrets/{name}", self._deleted, methods=["GET"]),
                Route("/deletedsecrets/{name}/recover", self._recover, methods=["POST"]),
            ]
        )

    async def _setting(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"title": "Forbidden"}, status_code=403)
        assert request.query_params.get("label") in (None, "", "\0"), "services read entries without a label"
        key = request.path_params["key"]
        if request.method == "GET":
            return self._item(key) if key in self.settings else Response(status_code=404)
        if self.before_put is not None:
            act, self.before_put = self.before_put, None
            act(key)
        if not self._condition_holds(request, key):
            return Response(status_code=412)
        fate = self.faults.write(f"{request.method} entry {key}")
        if fate == "refused":
            return JSONResponse({"title": "refused by the test"}, status_code=400)
        if request.method == "DELETE":
            answer = self._item(key) if key in self.settings else Response(status_code=204)
            self.settings.pop(key, None)
        else:
            body = json.loads(await request.body())
            self.set(key, body["value"], body.get("content_type") or "")
            answer = self._item(key)
        return JSONResponse({"title": "lost"}, status_code=400) if fate == "answer lost" else answer

    def _condition_holds(self, request: Request, key: str) -> bool:
        there = self.settings.get(key, {}).get("etag")
        if request.headers.get("if-none-match") == "*":
            return there is None
        wanted = request.headers.get("if-match")
        assert wanted is not None, "every write is conditional"
        return wanted.strip('"') == there

    def _item(self, key: str) -> Response:
        item = {"key": key, "label": None, "tags": {}, "locked": False, **self.settings[key]}
        return JSONResponse(item, media_type=KV, headers={"etag": f'"{item["etag"]}"'})

    async def _secret(self, request: Request) -> Response:
        if refusal := self._stranger(request):
            return refusal
        name = request.path_params["name"]
        if request.method == "GET":
            return self._told(name) if name in self.secrets else _problem(404, "SecretNotFound")
        if request.method == "PUT" and name in self.deleted_secrets:
            return _problem(409, "ObjectIsDeletedButRecoverable")
        if request.method == "DELETE" and name not in self.secrets:
            return _problem(404, "SecretNotFound")
        fate = self.faults.write(f"{request.method} secret {name}")
        if fate == "refused":
            return _problem(400, "Refused")
        if request.method == "PUT":
            self.secrets[name] = json.loads(await request.body())["value"]
            answer = self._told(name)
        else:
            self.deleted_secrets[name] = self.secrets.pop(name)
            answer = JSONResponse(
                {"id": f"{self.url}/secrets/{name}/1", "recoveryId": f"{self.url}/deletedsecrets/{name}", "attributes": {}}
            )
        return _problem(400, "Lost") if fate == "answer lost" else answer

    async def _deleted(self, request: Request) -> Response:
        name = request.path_params["name"]
        if refusal := self._stranger(request):
            return refusal
        known = name in self.deleted_secrets
        return JSONResponse({"id": f"{self.url}/secrets/{name}/1", "attributes": {}}) if known else _problem(404, "SecretNotFound")

    async def _recover(self, request: Request) -> Response:
        name = request.path_params["name"]
        if refusal := self._stranger(request):
            return refusal
        fate = self.faults.write(f"recover secret {name}")
        if fate != "refused":
            self.secrets[name] = self.deleted_secrets.pop(name)
        return self._told(name) if fate == "fine" else _problem(400, "Refused")

    def _told(self, name: str) -> Response:
        return JSONResponse({"id": f"{self.url}/secrets/{name}/1", "value": self.secrets[name], "attributes": {"enabled": True}})

    def _stranger(self, request: Request) -> Response | None:
        if "authorization" not in request.headers:
            challenge = f'Bearer authorization="{self.url}/tenant", resource="https://vault.azure.net"'
            return Response(status_code=401, headers={"www-authenticate": challenge})
        if request.headers["authorization"] != f"Bearer {TOKEN}":
            return _problem(403, "Forbidden")
        return None


def _problem(status: int, code: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": code}}, status_code=status)
