"""A proxy, real local sandboxes, and inside each a scripted model that lives as long as the sandbox.

The sandbox has no network, but its own loopback: so the model's endpoint is a detached process in there.
"""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from context_client.direct import DirectSettings, ModelAccess, SessionProxy
from context_client.embedded.provider import SandboxProvider
from context_client.sandboxes import LocalSandboxes, LocalSandboxSettings, SandboxEnded
from tests.runner_image.direct.conftest import KEY, scripted_archive

UPN = "someone@example.com"
PORT = 8123
MODEL = ModelAccess.model_validate({"base_url": f"http://127.0.0.1:{PORT}", "api_key": KEY})
QUICK = DirectSettings(wait_seconds=5)

_MODEL = """
import base64, json, pathlib, subprocess, sys, time, urllib.request
pathlib.Path("/tmp/scripted.zip").write_bytes(base64.b64decode({scripted!r}))
program = '''
import sys, json, asyncio
sys.path.append("/tmp/scripted.zip")
import uvicorn
from pydantic import SecretStr
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.script import Script
model = ScriptedModel(Script.model_validate(json.loads(sys.argv[1])), expected_key=SecretStr(sys.argv[2]))
async def app(scope, receive, send):
    if scope["type"] == "http" and scope["path"] == "/received":
        body = json.dumps([request.body for request in model.received]).encode()
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": body}})
    else:
        await model(scope, receive, send)
uvicorn.run(app, host="127.0.0.1", port={port}, log_level="critical", lifespan="off")
'''
with open("/tmp/model.log", "wb") as log:
    subprocess.Popen(
        [sys.executable, "-c", program, {script!r}, {key!r}], stdin=-3, stdout=log, stderr=log, start_new_session=True, cwd="/"
    )
for _ in range(200):
    try:
        urllib.request.urlopen("http://127.0.0.1:{port}/received").read()
        break
    except OSError:
        time.sleep(0.05)
else:
    raise SystemExit(open("/tmp/model.log").read())
"""


class Places:
    """Sandboxes as the proxy sees them, with a way to do things inside."""

    def __init__(self, sandboxes: SandboxProvider) -> None:
        self.sandboxes = sandboxes

    async def execute(self, session_id: str, code: str) -> str:
        """Run code in a session's sandbox and return what it printed."""
        endpoint = await self.sandboxes.endpoint(session_id=session_id, upn=UPN)
        async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=100) as client:
            detail = (await client.post("/code/execute", json={"code": code})).json()["detail"]
        assert detail["error"] == "", detail
        return str(detail["output"])

    async def play(self, session_id: str, *steps: dict[str, Any]) -> None:
        """Start a model in there that answers with these steps."""
        script = json.dumps({"name": "direct", "stepping": "in_order", "steps": steps or [{"text": "Hello."}]})
        await self.execute(session_id, _MODEL.format(scripted=scripted_archive(), script=script, key=KEY, port=PORT))

    async def replace(self, session_id: str) -> None:
        """End the sandbox, as a pool does with one that idled for too long; the next use gets an empty one."""
        endpoint = await self.sandboxes.endpoint(session_id=session_id, upn=UPN)
        async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url) as client:
            with suppress(httpx.TransportError):
                await client.post("/code/execute", json={"code": "import os, time\nos.kill(2, 9)\ntime.sleep(20)"})
        with suppress(SandboxEnded):
            await self.sandboxes.endpoint(session_id=session_id, upn=UPN)

    async def received(self, session_id: str) -> list[dict[str, Any]]:
        """Return what the model in there was asked."""
        code = f"import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:{PORT}/received').read().decode())"
        requests: list[dict[str, Any]] = json.loads(await self.execute(session_id, code))
        return requests


@pytest.fixture(scope="module")
async def places(anyio_backend: str) -> AsyncIterator[Places]:
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False)) as sandboxes:
        yield Places(sandboxes)


@pytest.fixture
async def proxy(places: Places) -> AsyncIterator[SessionProxy]:
    async with SessionProxy(places.sandboxes, model=MODEL, upn=UPN, settings=QUICK) as proxy:
        yield proxy
