"""The direct path where it runs: inside a real local sandbox, through its execute route, with a scripted model on a TCP port in there.

The sandbox has no network, but its own loopback: so the model's endpoint is started by the same execution that calls the direct path.
"""

import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import orchestration_service.scripted
from context_client.sandboxes.local import LocalSandboxes, LocalSandboxSettings

KEY = "sk-direct-secret-0815"
_RECEIVED = "RECEIVED "

_PLAY = """
import asyncio, base64, json, os, pathlib, sys
from pydantic import SecretStr
pathlib.Path("/tmp/scripted.zip").write_bytes(base64.b64decode({scripted!r}))
sys.path.append("/tmp/scripted.zip")
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import scripted_endpoint
from orchestration_service.scripted.script import Script

async def die_at_request(model, number):
    while len(model.received) < number:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)
    os.kill(os.getpid(), 9)

async def play():
    model = ScriptedModel(Script.model_validate(json.loads({script!r})), expected_key=SecretStr({key!r}))
    async with scripted_endpoint(model) as endpoint:
        os.environ["ANTHROPIC_BASE_URL"] = endpoint.base_url
        os.environ["ANTHROPIC_API_KEY"] = {key!r}
        from runner_image.direct import run_chat, run_init
        {call}
    print({received!r} + json.dumps([request.body for request in model.received]))

asyncio.run(play())
"""


@dataclass(frozen=True)
class Played:
    """What came out of one execution."""

    events: list[dict[str, Any]]
    """Events on standard output, in order."""

    requests: list[dict[str, Any]]
    """What the scripted model was asked."""

    def types(self) -> list[str]:
        """The names of the events."""
        return [str(event["type"]) for event in self.events]

    def last(self) -> dict[str, Any]:
        """The event that ended the call."""
        return self.events[-1]


class Sandbox:
    """A code session whose code may use the direct path."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def execute(self, code: str) -> str:
        """Run code and return what it printed."""
        answer = await self._client.post("/code/execute", json={"code": code})
        detail = answer.json()["detail"]
        assert detail["error"] == "", detail
        return str(detail["output"])

    async def play(self, call: str, *steps: dict[str, Any]) -> Played:
        """Run calls of the direct path beside a model that answers with these steps."""
        script = json.dumps({"name": "direct", "stepping": "in_order", "steps": steps or [{"text": "Hello."}]})
        code = _PLAY.format(scripted=scripted_archive(), script=script, key=KEY, call=call, received=_RECEIVED)
        lines = (await self.execute(code)).splitlines()
        requests = [json.loads(line.removeprefix(_RECEIVED)) for line in lines if line.startswith(_RECEIVED)]
        return Played([json.loads(line) for line in lines if not line.startswith(_RECEIVED)], requests[0])


@pytest.fixture(scope="module")
async def sandboxes() -> AsyncIterator[LocalSandboxes]:
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False)) as provider:
        yield provider


@pytest.fixture
async def sandbox(sandboxes: LocalSandboxes, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A sandbox of the test's own."""
    endpoint = await sandboxes.endpoint(session_id=request.node.name, upn="someone@example.com")
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=100) as client:
        yield Sandbox(client)


def scripted_archive() -> str:
    """The scripted model's modules as a zip archive in base64; the service is not part of a sandbox."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("orchestration_service/__init__.py", "")
        for path in Path(orchestration_service.scripted.__path__[0]).glob("*.py"):
            archive.write(path, f"orchestration_service/scripted/{path.name}")
    return base64.b64encode(packed.getvalue()).decode()
