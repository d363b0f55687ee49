"""A stand-in of Amazon Bedrock's runtime, and of the token service that gives out temporary keys."""

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.orchestration_service.brokers.standins.provider import Denied, Event, Provider
from tests.orchestration_service.brokers.standins.sigv4 import access_key_of, fault_of

REGION = "eu-central-1"
_PATH = re.compile(r"/model/([^/]+)/(invoke-with-response-stream|count-tokens)\Z")
_EXCEPTIONS = {
    "throttled": "ThrottlingException",
    "overloaded": "ServiceUnavailableException",
    "not_found": "ResourceNotFoundException",
    "unauthorized": "UnrecognizedClientException",
    "invalid": "ValidationException",
}


def framed(headers: dict[str, str], payload: bytes) -> bytes:
    """Write a frame of the binary event stream, with its two checksums."""
    head = b""
    for name, value in headers.items():
        head += struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    prelude += struct.pack("!I", binascii.crc32(prelude))
    frame = prelude + head + payload
    return frame + struct.pack("!I", binascii.crc32(frame))


@dataclass
class Bedrock(Provider):
    """Takes signed requests, or a key of its own as a bearer; gives binary frames."""

    keys: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Secret and session token by the name of a key."""
    api_key: str | None = None
    """The other kind of key."""
    region: str = REGION
    """Where it stands."""

    media_type = "application/vnd.amazon.eventstream"

    def check(self, request: Request, path: str, body: bytes) -> None:
        """Compute the signature anew; or compare the bearer."""
        if self.api_key is not None:
            if request.headers.get("authorization") != f"Bearer {self.api_key}":
                raise Denied(self.error(403, "unauthorized", f"Invalid API Key format: {request.headers.get('authorization')}"))
            return
        headers = {name.lower(): value for name, value in request.headers.items()}
        secret, session = self.keys.get(str(access_key_of(headers)), (None, None))
        if secret is None or headers.get("x-amz-security-token") != session:
            raise Denied(self.error(403, "unauthorized", "The security token included in the request is invalid."))
        fault = fault_of(
            method=request.method, path=path, query=request.url.query, headers=headers, body=body,
            secret=secret, region=self.region, service="bedrock",
        )  # fmt: skip
        if fault is not None:
            raise Denied(self.error(403, "unauthorized", f"The request signature we calculated does not match: {fault}"))

    def model_of(self, request: Request, path: str, body: dict[str, Any]) -> str:
        """The model is in the path; the version and the beta names are in the body."""
        found = _PATH.match(path)
        assert found is not None, path
        if found.group(2) == "count-tokens":
            body = json.loads(base64.b64decode(body["input"]["invokeModel"]["body"], validate=True))
            assert body["max_tokens"]
        assert body["anthropic_version"] == "bedrock-2023-05-31"
        assert not {"model", "stream"} & set(body)
        assert not {"anthropic-version", "anthropic-beta", "x-api-key"} & set(request.headers)
        return unquote(found.group(1))

    def frame(self, event: Event) -> bytes:
        """Frames of type `chunk`, the event in base64, with padding against guessing its length."""
        payload = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcdef"}).encode()
        return framed({":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}, payload)

    def error(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
        """The shape of AWS: the kind is a header."""
        marks = {"x-amzn-ErrorType": f"{_EXCEPTIONS[kind]}:http://internal.amazon.com/", "x-amzn-RequestId": "req_1", **(headers or {})}
        return Response(json.dumps({"message": message}), status, marks, "application/json")

    def overloaded(self) -> Response:
        """Bedrock says so with 503."""
        return self.error(503, "overloaded", "no room")

    def inner_error(self) -> bytes:
        """An exception in a frame, as of a model that fails while it answers."""
        told = {"message": "the model failed", "originalStatusCode": 529, "originalMessage": "no room inside"}
        marks = {":exception-type": "modelStreamErrorException", ":content-type": "application/json", ":message-type": "exception"}
        return framed(marks, json.dumps(told).encode())

    def damaged(self, frame: bytes) -> bytes:
        """One bit is another, which the checksum tells."""
        return frame[:-9] + bytes([frame[-9] ^ 1]) + frame[-8:]

    def counted(self, body: dict[str, Any]) -> Event:
        """In another spelling."""
        return {"inputTokens": 10}


@dataclass
class Sts:
    """The token service: changes an Entra token into temporary keys of one role."""

    role_arn: str
    """The role."""
    is_token: Callable[[str], bool]
    """Whether a token is one that may be changed."""
    keys: dict[str, tuple[str, str | None]]
    """Gets the keys that are given out."""
    asked: int = 0
    """How often it was asked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in XML, as it does."""
        if scope["type"] != "http":
            return
        self.asked += 1
        form = {name: values[0] for name, values in parse_qs((await Request(scope, receive).body()).decode()).items()}
        assert (form["Action"], form["Version"]) == ("AssumeRoleWithWebIdentity", "2011-06-15")
        if form["RoleArn"] != self.role_arn or not self.is_token(form["WebIdentityToken"]):
            body = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
            await Response(body, 403, media_type="text/xml")(scope, receive, send)
            return
        self.keys["ASIA0000"] = ("secret-of-a-role", "session-of-a-role")
        given = (
            "<AccessKeyId>ASIA0000</AccessKeyId><SecretAccessKey>secret-of-a-role</SecretAccessKey>"
            "<SessionToken>session-of-a-role</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
        )
        body = (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
            f"<Credentials>{given}</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )
        await Response(body, media_type="text/xml")(scope, receive, send)
