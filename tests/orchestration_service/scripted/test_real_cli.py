"""The shipped scripts, played to the real CLI on a real repository, outside any sandbox."""

from pathlib import Path

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, ToolUseBlock, query

from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.demo_repository import DEMO_PROMPT, TEST_COMMAND, create_demo_repository
from orchestration_service.scripted.endpoint import ScriptedEndpoint, scripted_endpoint
from orchestration_service.scripted.script import ShippedScript, shipped_script

pytestmark = pytest.mark.anyio


def options(endpoint: ScriptedEndpoint, workspace: Path, home: Path) -> ClaudeAgentOptions:
    """What the CLI needs to run alone against an endpoint on a socket."""
    return ClaudeAgentOptions(
        cwd=workspace,
        tools=["Read", "Edit", "Write", "Bash", "Grep", "Glob"],
        permission_mode="bypassPermissions",
        setting_sources=[],
        strict_mcp_config=True,
        verbatim_prompts=True,
        env={
            "ANTHROPIC_UNIX_SOCKET": str(endpoint.uds),
            "ANTHROPIC_BASE_URL": endpoint.base_url,
            "ANTHROPIC_API_KEY": "placeholder",
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / "config"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "IS_SANDBOX": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )


async def play(name: ShippedScript, tmp_path: Path) -> tuple[ScriptedModel, list[str], ResultMessage]:
    """Let the CLI work through a shipped script on a fresh demo repository."""
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    home.mkdir()
    create_demo_repository(workspace)
    model = ScriptedModel(shipped_script(name), placeholders={"workspace": str(workspace)}, pace=0)
    tools: list[str] = []
    results: list[ResultMessage] = []
    async with scripted_endpoint(model, uds=tmp_path / "model.sock") as endpoint:
        async for message in query(prompt=DEMO_PROMPT, options=options(endpoint, workspace, home)):
            if isinstance(message, AssistantMessage):
                tools += [block.name for block in message.content if isinstance(block, ToolUseBlock)]
            elif isinstance(message, ResultMessage):
                results.append(message)
    assert len(results) == 1
    assert (await anyio.run_process(TEST_COMMAND, cwd=workspace, check=False)).returncode == 0
    return model, tools, results[0]


async def test_the_demo_fixes_the_failing_test(tmp_path: Path) -> None:
    model, tools, result = await play("demo", tmp_path)
    assert tools == ["Bash", "Read", "Grep", "Edit", "Write", "Write", "Bash", "Bash"]
    assert not result.is_error
    assert result.result is not None
    assert result.result.startswith("All tests pass now.")
    assert [request.step for request in model.received] == [f"steps[{number}]" for number in range(6)]
    status = await anyio.run_process(["git", "status", "--short"], cwd=tmp_path / "workspace")
    assert status.stdout.decode().split() == [
        "M",
        "pricing/discount.py",
        "??",
        "CHANGELOG.md",
        "??",
        "tests/test_discount_edge.py",
    ]


async def test_edit_eight_is_exactly_eight_calls(tmp_path: Path) -> None:
    model, tools, result = await play("edit_eight", tmp_path)
    assert tools == ["Read", "Grep", "Edit", "Write", "Bash", "Glob", "Bash"]
    assert len(model.received) == 8
    assert result.usage is not None
    assert result.usage["output_tokens"] == 8 * 60
    assert result.num_turns == 8


async def test_every_tool_of_the_shipped_scripts_succeeds(tmp_path: Path) -> None:
    """Only the first test run of the demo may fail: that is the story."""
    model, _, _ = await play("demo", tmp_path)
    last = model.received[-1].body["messages"]
    results = [
        block
        for message in last
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert [bool(block.get("is_error")) for block in results] == [True] + [False] * 7
