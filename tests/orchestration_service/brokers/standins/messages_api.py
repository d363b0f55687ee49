"""Stand-ins of whoever takes Anthropic's own form: Anthropic, gateways, and Microsoft Foundry."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tests.orchestration_service.brokers.standins.provider import Denied, Event, Provider, sse

_TYPES = {
    "throttled": "rate_limit_error",
    "overloaded": "overloaded_error",
    "not_found": "not_found_error",
    "unauthorized": "authentication_error",
    "invalid": "invalid_request_error",
}


@dataclass
class MessagesApi(Provider):
    """Anthropic, or a gateway: a header must have the value it expects."""

    header: str = "x-api-key"
    """Where the proof is looked for."""
    is_right: Callable[[str], bool] = bool
    """Whether a value of that header proves a right."""
    prefix: str = ""
    """Path before that of the API."""

    def check(self, request: Request, path: str, body: bytes) -> None:
        """Look at the header; the others that may carry a proof have to be empty, or a key would go to a stranger."""
        given = request.headers.get(self.header)
        strange = [name for name in ("x-api-key", "authorization", "api-key") if name != self.header and name in request.headers]
        if given is None or strange or not self.is_right(given):
            raise Denied(self.error(401, "unauthorized", f"the proof {given!r} is not accepted; besides there were {strange}"))

    def model_of(self, request: Request, path: str, body: dict[str, Any]) -> str:
        """The model is in the body, the version is a header."""
        assert path in (f"{self.prefix}/v1/messages", f"{self.prefix}/v1/messages/count_tokens"), path
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert path.endswith("count_tokens") or body["stream"] is True
        return str(body["model"])

    def frame(self, event: Event) -> bytes:
        """Server-sent events."""
        return sse(event)

    def error(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
        """The API's own shape."""
        body = {"type": "error", "error": {"type": _TYPES[kind], "message": message}}
        return Response(json.dumps(body), status, {"request-id": "req_1", **(headers or {})}, "application/json")

    def inner_error(self) -> bytes:
        """An event of its own."""
        return sse({"type": "error", "error": {"type": "overloaded_error", "message": "no room inside"}})

    def throttled(self) -> Response:
        """Says in seconds when to come back."""
        return self.error(429, "throttled", "slow down", {"retry-after": "0"})


@dataclass
class Foundry(MessagesApi):
    """Microsoft Foundry: a key in two headers at once, or a token for the right audience; errors in Azure's shape."""

    is_token: Callable[[str], bool] = lambda token: False
    """Whether a token of Entra is one for Foundry."""
    prefix: str = "/anthropic"

    def check(self, request: Request, path: str, body: bytes) -> None:
        """Either proof, and not both."""
        key, token = request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer ")
        accepted = self.is_token(token) if token and key is None else bool(key and not token and self.is_right(key))
        if not accepted:
            raise Denied(self.error(401, "unauthorized", f"Access denied due to invalid subscription key or wrong token: {key or token}"))

    def error(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
        """Azure's shape, except where the model itself refuses."""
        if kind == "invalid":
            return super().error(status, kind, message, headers)
        body = {"error": {"code": {"not_found": "DeploymentNotFound"}.get(kind, str(status)), "message": message}}
        return Response(json.dumps(body), status, {"apim-request-id": "req_1", **(headers or {})}, "application/json")

    def throttled(self) -> Response:
        """Says in milliseconds when to come back."""
        return self.error(429, "throttled", "slow down", {"retry-after-ms": "15", "retry-after": "1"})
