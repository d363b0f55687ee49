"""A door before Azurite: everything goes through as it is, and a write can be made to go wrong."""

from dataclasses import dataclass
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response

from tests.orchestration_service.deploying.standins.faults import Faults

_OWN = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}


@dataclass
class BlobDoor:
    """The door."""

    faults: Faults
    client: httpx.AsyncClient
    """Leads to the emulator."""

    before_write: Any = None
    """Awaited once with a path before a write goes through: somebody else's chance."""

    async def answer(self, request: Request) -> Response:
        fate = "fine"
        if request.method in {"PUT", "DELETE"}:
            if self.before_write is not None and self.before_write[0] in request.url.path:
                act, self.before_write = self.before_write[1], None
                await act()
            fate = self.faults.write(f"{request.method} blob {request.url.path.split('/', 3)[-1]}")
        if fate == "refused":
            return _refusal()
        headers = [(name, value) for name, value in request.headers.items() if name not in _OWN]
        path = request.scope["raw_path"].decode() + (f"?{request.url.query}" if request.url.query else "")
        answer = await self.client.request(request.method, path, headers=headers, content=await request.body())
        if fate == "answer lost":
            return _refusal()
        kept = {name: value for name, value in answer.headers.items() if name not in _OWN | {"date", "content-encoding"}}
        if request.method == "HEAD":
            kept["content-length"] = answer.headers.get("content-length", "0")
        return Response(answer.content, answer.status_code, headers=kept)


def _refusal() -> Response:
    return Response(b"<Error><Code>InvalidInput</Code><Message>refused by the test</Message></Error>", 400, media_type="application/xml")
