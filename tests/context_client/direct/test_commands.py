"""The commands of docs/direct.md do what the page says: its smoke commands in a real sandbox, and the command line before one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestration_service.scripted.endpoint import serve
from tests.context_client.direct.conftest import Places

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "direct.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r'python -c "\n(.*?)\n"\n# ([^\n]*)', PAGE, re.DOTALL)
BODIES = re.findall(r"-d '(\{.*\})'\n# (.*)", PAGE)


@pytest.mark.parametrize(("program", "says"), PROGRAMS, ids=["imports", "event", "store"])
async def test_a_smoke_command_prints_what_the_page_says(places: Places, program: str, says: str) -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {program!r}], check=True)"
    assert (await places.execute("smoke-1", code)).strip() == says


async def test_the_call_of_the_route_answers_what_the_page_says(places: Places) -> None:
    ((body, says),) = BODIES
    output = await places.execute("smoke-1", json.loads(body)["code"])
    assert output == json.loads(says)["detail"]["output"]


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
