"""A stand-in of a managed identity's endpoint, as services find it in their environment."""

import time
from dataclasses import dataclass, field

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

HEADER = "the-word-of-this-machine"


@dataclass
class ManagedIdentity:
    """Signs tokens for whatever audience it is asked for; whoever gets one checks signature and audience."""

    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))
    """Of the directory."""
    asked: list[str] = field(default_factory=list)
    """Audiences that tokens were asked for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a token."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if request.headers.get("x-identity-header") != HEADER:
            await JSONResponse({"error": "no"}, 401)(scope, receive, send)
            return
        audience = request.query_params["resource"]
        self.asked.append(audience)
        ends = int(time.time()) + 3600
        token = jwt.encode({"aud": audience, "exp": ends, "oid": "agent"}, self.key, "RS256")
        answer = {"access_token": token, "expires_on": str(ends), "resource": audience, "token_type": "Bearer"}
        await JSONResponse(answer)(scope, receive, send)

    def is_for(self, token: str, *audiences: str) -> bool:
        """Say whether a token is this directory's, still good, and for one of some audiences."""
        try:
            jwt.decode(token, self.key.public_key(), ["RS256"], audience=list(audiences))
        except jwt.InvalidTokenError:
            return False
        return True
