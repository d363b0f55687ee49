"""The agent itself: the one module that knows the Claude Agent SDK.

It starts the CLI behind the wall, feeds it the prompt, turns the SDK's messages into activity events, and ends it in every case.
Measured facts about the CLI that this file relies on are in docs/claude_cli.md.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    Message,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from runner_image.errors import AgentError
from runner_image.wall import CONFIG, MODEL_SOCKET, base_environment
from workflow_schemas.events import Event, Text, ToolEnd, ToolStart
from workflow_schemas.manifest import EndReason
from workflow_schemas.plan import TurnPlan
from workflow_schemas.usage import Usage

_SHORT = 2000
_BUFFER_BYTES = 64 * 1024 * 1024
_STOP_SECONDS = 8.0

Emit = Callable[[Event], Awaitable[None]]


@dataclass
class AgentRun:
    """What is known about the agent while and after it works."""

    session_id: str = ""
    answer: str = ""
    usage: Usage = field(default_factory=Usage)
    end_reason: EndReason = "completed"
    detail: str = ""
    permission_denials: int = 0


class Agent:
    """A running agent."""

    def __init__(self, client: ClaudeSDKClient, emit: Emit) -> None:
        self._client = client
        self._emit = emit
        self._started: dict[str, tuple[str, float]] = {}
        self._stopping: tuple[EndReason, str] | None = None
        self.run = AgentRun()

    async def work(self, prompt: str) -> AgentRun:
        """Give the agent its prompt and follow it until it is done or stopped.

        Raises:
            AgentError: The agent's process died or spoke nonsense.
        """
        try:
            await self._client.query(prompt)
            async for message in self._client.receive_response():
                await self._take(message)
        except ClaudeSDKError as error:
            if self._stopping is None:
                raise AgentError(f"the agent's process failed: {error}") from error
        if self._stopping is not None:
            self.run.end_reason, self.run.detail = self._stopping
        return self.run

    async def say(self, text: str) -> None:
        """Tell the agent something in the middle of its work; it reads it with the next model call."""
        await self._client.query(text)

    async def stop(self, reason: EndReason, detail: str) -> None:
        """Interrupt the agent; :meth:`work` then returns with this reason."""
        if self._stopping is None:
            self._stopping = (reason, detail)
            try:
                await asyncio.wait_for(self._client.interrupt(), _STOP_SECONDS)
            except (TimeoutError, ClaudeSDKError):
                await self._client.disconnect()

    async def _take(self, message: Message) -> None:
        if isinstance(message, SystemMessage) and message.subtype == "init":
            self.run.session_id = str(message.data.get("session_id", ""))
        elif isinstance(message, AssistantMessage):
            await self._take_assistant(message)
        elif isinstance(message, UserMessage):
            await self._take_results(message)
        elif isinstance(message, ResultMessage):
            self._take_result(message)

    async def _take_assistant(self, message: AssistantMessage) -> None:
        for block in message.content:
            if isinstance(block, TextBlock) and message.model != "<synthetic>":
                self.run.answer = block.text
                await self._emit(Text(at=time.time(), content=block.text))
            elif isinstance(block, ToolUseBlock):
                self._started[block.id] = (block.name, time.monotonic())
                await self._emit(ToolStart(at=time.time(), id=block.id, name=block.name, input=_shortened(block.input)))

    async def _take_results(self, message: UserMessage) -> None:
        for block in message.content if isinstance(message.content, list) else []:
            if isinstance(block, ToolResultBlock):
                name, since = self._started.pop(block.tool_use_id, ("", time.monotonic()))
                await self._emit(
                    ToolEnd(
                        at=time.time(),
                        id=block.tool_use_id,
                        name=name,
                        success=not block.is_error,
                        output=_text_of(block.content)[:_SHORT],
                        duration_seconds=round(time.monotonic() - since, 4),
                    )
                )

    def _take_result(self, result: ResultMessage) -> None:
        run = self.run
        run.session_id = result.session_id or run.session_id
        run.permission_denials = len(result.permission_denials or [])
        run.usage = _usage(result)
        if result.subtype == "success" and not result.is_error:
            run.answer = result.result or run.answer
        elif result.subtype == "error_max_turns":
            run.end_reason, run.detail = "max_turns", "The agent used up its model calls."
        elif result.terminal_reason in ("api_error", "prompt_too_long", "image_error"):
            run.end_reason, run.detail = "model_error", (result.result or "The model could not be reached.")[:_SHORT]
        else:
            run.end_reason = "agent_error"
            run.detail = (result.result or "; ".join(result.errors or []) or f"The agent ended with {result.subtype!r}.")[:_SHORT]


@asynccontextmanager
async def start_agent(plan: TurnPlan, *, wrapper: Path, emit: Emit, resume: str | None, log: Callable[[str], None]) -> AsyncIterator[Agent]:
    """Start the agent behind the wall and end it, whatever happens.

    Args:
        plan: What to do, and with which tools and limits.
        wrapper: Program that starts the CLI behind the wall.
        emit: Takes each activity event.
        resume: Session of an earlier turn in this sandbox to go on with.
        log: Takes each line of the CLI's standard error.

    Raises:
        AgentError: The CLI does not start.
    """
    options = ClaudeAgentOptions(
        tools=list(plan.tools),
        system_prompt={"type": "preset", "preset": "claude_code", "append": plan.system_prompt},
        permission_mode="bypassPermissions",
        setting_sources=[],
        strict_mcp_config=True,
        verbatim_prompts=True,
        max_turns=plan.limits.max_turns,
        max_buffer_size=_BUFFER_BYTES,
        model=plan.model,
        resume=resume,
        cli_path=str(wrapper),
        cwd="/",
        stderr=log,
        settings='{"attribution":{"commit":"","pr":""},"includeCoAuthoredBy":false}',
    )
    client = ClaudeSDKClient(options)
    try:
        await client.connect()
    except ClaudeSDKError as error:
        raise AgentError(f"the agent's CLI does not start: {error}") from error
    try:
        yield Agent(client, emit)
    finally:
        await client.disconnect()


def agent_environment(plan: TurnPlan) -> dict[str, str]:
    """Return every environment variable of the CLI; the key is a word without meaning, the real one never comes here."""
    milliseconds = str(int(plan.limits.hard_seconds * 1000) + 60_000)
    return {
        **base_environment(),
        "ANTHROPIC_UNIX_SOCKET": MODEL_SOCKET,
        "ANTHROPIC_BASE_URL": "http://model.internal",
        "ANTHROPIC_API_KEY": "held-by-the-service",
        "CLAUDE_CONFIG_DIR": CONFIG,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "API_TIMEOUT_MS": milliseconds,
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": milliseconds,
        "BASH_DEFAULT_TIMEOUT_MS": str(plan.limits.command_timeout_seconds * 1000),
        "BASH_MAX_TIMEOUT_MS": str(plan.limits.command_timeout_seconds * 1000),
        "IS_SANDBOX": "1",
        "GIT_AUTHOR_NAME": "Claude Code",
        "GIT_AUTHOR_EMAIL": "claude-code@localhost",
        "GIT_COMMITTER_NAME": "Claude Code",
        "GIT_COMMITTER_EMAIL": "claude-code@localhost",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _usage(result: ResultMessage) -> Usage:
    used: Mapping[str, Any] = result.usage or {}
    return Usage(
        model_calls=max(0, result.num_turns),
        input_tokens=int(used.get("input_tokens") or 0),
        cache_read_tokens=int(used.get("cache_read_input_tokens") or 0),
        cache_write_tokens=int(used.get("cache_creation_input_tokens") or 0),
        output_tokens=int(used.get("output_tokens") or 0),
    )


def _shortened(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: f"{value[:_SHORT]}… ({len(value)} characters)" if isinstance(value, str) and len(value) > _SHORT else value
        for name, value in arguments.items()
    }


def _text_of(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content)
    return content or ""
