"""Schemathesis over the service's own OpenAPI description, on a real socket.

It runs as the command people know, in a process of its own: its requests are blocking, and its warnings are not ours.
"""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.orchestration_service.serving import INSTANCE, KEY, identity, served

pytestmark = pytest.mark.anyio

CONFIG = f"""
seed = 20260203

[parameters]
"path.instance_id" = "{INSTANCE}"
"path.operation_id" = "op-1"
"""
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,allow_header_conformance,unsupported_method,positive_data_acceptance"
)


async def test_no_request_breaks_the_service(tmp_path: Path) -> None:
    """Whatever is sent, the answer is one the description promises, and never a 5xx."""
    async with served(tmp_path, keep_alive_seconds=0.1) as service:
        service.answer_at_once = True
        await service.start("op-1")
        config = tmp_path / "schemathesis.toml"
        await anyio.Path(config).write_text(CONFIG)
        command = [
            *(str(Path(sys.executable).with_name("st")), "--config-file", str(config), "run"),
            *(f"{service.url}/openapi.json", "--checks", CHECKS, "--phases", "examples,coverage,fuzzing,stateful"),
            *("--max-examples", "10", "--workers", "1", "--no-shrink", "--request-timeout", "10", "--suppress-health-check", "all"),
            *("--header", f"X-API-KEY:{KEY}", "--header", f"X-USER-IDENTITY:{identity()}", "--continue-on-failure", "--no-color"),
        ]
        with anyio.fail_after(60):
            done = await anyio.run_process(command, check=False, cwd=tmp_path, stderr=subprocess.STDOUT)
        report = done.stdout.decode(errors="replace")
        assert done.returncode == 0, report[-6000:]
        assert (await service.poll("op-1")).status_code == 200
