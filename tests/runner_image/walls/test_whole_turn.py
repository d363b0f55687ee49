"""A whole turn of the real CLI in a sandbox without bubblewrap: everything works behind Landlock, and the CLI opens no door."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from context_client.sandboxes.local import LocalSandboxes, LocalSandboxSettings
from runner_image.walls import launcher
from tests.runner_image.direct.conftest import KEY, Sandbox

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(launcher.landlock_abi() < launcher.NEEDED_ABI, reason="this kernel's Landlock is too old"),
]

WITHOUT_BUBBLEWRAP = "os.environ['PATH'] = '/opt/python/bin:/usr/bin:/bin'; "


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False)) as provider:
        endpoint = await provider.endpoint(session_id="without-bubblewrap", upn="someone@example.com")
        async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=100) as client:
            yield Sandbox(client)


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_use": [{"name": name, "input": arguments}]}


def bash(command: str) -> dict[str, Any]:
    return tool("Bash", command=command, description="Look around")


async def test_the_wall_is_named(sandbox: Sandbox) -> None:
    played = await sandbox.play(f"{WITHOUT_BUBBLEWRAP} await run_init()")
    assert any("The wall stands: Landlock" in str(event.get("message")) for event in played.events), played.events
    assert played.types()[-1] == "done"


async def test_a_turn_behind_landlock(sandbox: Sandbox) -> None:
    doors = "ls /tmp/cc-socks* | grep -c 'sock$'; cat $CLAUDE_CONFIG_DIR/sessions/* 2> /dev/null | wc -c; env | grep -c MESSAGING"
    played = await sandbox.play(
        f"{WITHOUT_BUBBLEWRAP} await run_chat('Work.')",
        tool("Write", file_path="/workspace/note.txt", content="hi\n"),
        tool("Edit", file_path="/workspace/note.txt", old_string="hi", new_string="ho"),
        tool("Grep", pattern="ho", path="/workspace"),
        bash("cat note.txt; setsid sleep 4711 & echo there > /tmp/file; python3 -c 'import socket; socket.socket()' 2>&1 | tail -1"),
        bash("pwd; cat /proc/[0-9]*/comm | grep -c '^sleep$'"),
        bash(doors),
        bash("cat /proc/*/environ /run/claude-code/* /tmp/* 2> /dev/null | tr '\\0' '\\n' | grep -c sk-direct"),
        {"text": "Done."},
    )
    ends = [event for event in played.events if event["type"] == "tool_end"]
    assert [end["success"] for end in ends[:4]] == [True] * 4, ends
    said = [str(end["output"]).splitlines() for end in ends[3:]]
    assert said[0] == ["ho", "PermissionError: [Errno 13] Permission denied"]
    assert "0" in said[1]
    assert [word for word in said[2] if word.isdigit()] == ["0", "0", "0"]
    assert "0" in said[3]
    assert played.last()["type"] == "done"
    assert KEY not in str(played.requests)
