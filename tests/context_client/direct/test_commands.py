"""The commands of docs/direct.md do what the page says: its smoke commands in a real sandbox, and the command line before one."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest

from orchestration_service.scripted.endpoint import serve
from tests.context_client.direct.conftest import UPN, Places
from tests.context_client.direct.page import BODIES, PROGRAMS, ROOT

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("program", "says"), PROGRAMS, ids=["imports", "event", "store", "init"])
async def test_a_smoke_command_prints_what_the_page_says(places: Places, program: str, says: str) -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {program!r}], check=True)"
    assert says in await places.execute("smoke-1", code)


@pytest.mark.parametrize(("body", "says"), BODIES, ids=["plain", "as to a code-interpreter pool", "packages"])
async def test_a_call_of_the_route_answers_what_the_page_says(places: Places, body: str, says: str) -> None:
    endpoint = await places.sandboxes.endpoint(session_id="smoke-1", upn=UPN)
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=100) as client:
        answer = (await client.post("/code/execute", json=json.loads(body))).text
    assert says in answer


@pytest.fixture
async def address(places: Places, anyio_backend: str) -> AsyncIterator[str]:
    """A pool on a port of this machine: it passes executions on to a real sandbox."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        output = await places.execute("tcp-1", json.loads(body)["code"])
        answer = json.dumps({"detail": {"results": {}, "output": output, "error": ""}}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer})

    async with serve(app) as server:
        yield server.base_url


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param(["--session", "a.b", "status"], 2, ["BadSession"], id="bad identifier"),
        pytest.param(["--session", "tcp-1", "status"], 0, ['"running":null', '"session":null'], id="status"),
        pytest.param(
            ["--session", "tcp-1", "init", "--team", "birds"], 1, ['"type":"progress"', "ANTHROPIC_API_KEY"], id="init without a model"
        ),
        pytest.param(["--session", "tcp-1", "follow"], 1, ['"type":"error"'], id="follow"),
        pytest.param(["--session", "tcp-1", "clear"], 0, [], id="clear"),
    ],
)
async def test_the_command_line(address: str, words: list[str], status: int, said: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    command = [sys.executable, "-m", "context_client.direct", "--url", address, *words]
    ended = await anyio.run_process(command, cwd=ROOT, check=False, stderr=subprocess.STDOUT, env=environment)
    assert ended.returncode == status, ended.stdout
    assert [words for words in said if words not in ended.stdout.decode()] == []
