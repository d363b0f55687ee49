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
    ServerToolResultBlock,
    ServerToolUseBlock,
    SystemMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from runner_image.errors import AgentError
from runner_image.walls import INSIDE, View, base_environment
from workflow_schemas.events import Event, Progress, Text, ToolEnd, ToolStart, Warned
from workflow_schemas.manifest import EndReason
from workflow_schemas.plan import TurnPlan
from workflow_schemas.usage import Usage

_SHORT = 2000
_LINE = 200
_MAX_DEPTH = 20
_SMALL_MODEL = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")  # the older and the newer name of the same
_SYNTHETIC = "<synthetic>"  # the CLI's name for itself where it speaks in the model's place
_BUFFER_BYTES = 64 * 1024 * 1024
_STOP_SECONDS = 8.0

Emit = Callable[[Event], Awaitable[None]]


@dataclass
class AgentRun:
    """What is known about the agent while and after it works."""

    session_id: str = ""
    """Session of the SDK, for resuming."""
    answer: str = ""
    """The agent's last words; never a subagent's, and never the CLI's own."""
    usage: Usage = field(default_factory=Usage)
    """Calls of this process, subagents' included; tokens of the main thread only, because the CLI's counts per model go on in a resumed
    session and cannot be told apart from those of earlier turns."""
    end_reason: EndReason = "completed"
    """Why the agent ended."""
    detail: str = ""
    """More about the end, for people."""
    permission_denials: int = 0
    """Tool calls that were not allowed."""


class Agent:
    """A running agent."""

    def __init__(self, client: ClaudeSDKClient, emit: Emit) -> None:
        self._client = client
        self._emit = emit
        self._open_calls: dict[str, tuple[ToolStart, float]] = {}
        self._answered_calls: set[str] = set()
        self._background: set[str] = set()
        self._synthetic = ""
        self._stopping: tuple[EndReason, str] | None = None
        self.run = AgentRun()

    async def work(self, prompt: str) -> AgentRun:
        """Give the agent its prompt and follow it until it is done or stopped.

        Raises:
            AgentError: The agent's process died or spoke nonsense.
        """
        failure: ClaudeSDKError | None = None
        try:
            await self._client.query(prompt)
            async for message in self._client.receive_response():
                await self.take(message)
        except ClaudeSDKError as error:
            failure = error
        await self._end_open_calls()
        if self._stopping is not None:
            self.run.end_reason, self.run.detail = self._stopping
        elif failure is not None:
            raise AgentError(f"the agent's process failed: {failure}") from failure
        return self.run

    async def take(self, message: Message) -> None:
        """Turn one message of the SDK into events, and into what is known about the run.

        Raises:
            AgentError: The message makes no sense.
        """
        try:
            if isinstance(message, AssistantMessage):
                await self._take_assistant(message)
            elif isinstance(message, UserMessage):
                for block in message.content if isinstance(message.content, list) else []:
                    await self._take_result_block(block)
            elif isinstance(message, ResultMessage):
                self._take_result(message)
            elif isinstance(message, SystemMessage):
                await self._take_system(message)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise AgentError(f"the agent's process said something that makes no sense: {type(error).__name__}: {error}"[:_SHORT]) from error

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

    async def _take_assistant(self, message: AssistantMessage) -> None:
        """Take what the model said: one block each time, with the message's identifier repeated."""
        if message.model != _SYNTHETIC:
            self._answered_calls.add(message.message_id or message.uuid or "")
            self.run.usage = self.run.usage.model_copy(update={"model_calls": len(self._answered_calls)})
        for block in message.content:
            if isinstance(block, TextBlock):
                await self._take_text(block.text, message)
            elif isinstance(block, ToolUseBlock | ServerToolUseBlock):
                parent = message.parent_tool_use_id or ""
                start = ToolStart(at=time.time(), id=block.id, parent_id=parent, name=block.name, input=_shortened(block.input))
                self._open_calls[block.id] = (start, time.monotonic())
                await self._emit(start)
            else:
                await self._take_result_block(block)

    async def _take_text(self, text: str, message: AssistantMessage) -> None:
        """Keep the agent's words apart from the CLI's own and from a subagent's, whose report is the result of the tool call."""
        if message.model == _SYNTHETIC:
            self._synthetic = text
        elif message.parent_tool_use_id is None and text.strip():
            self.run.answer = text
            await self._emit(Text(at=time.time(), content=text))

    async def _take_result_block(self, block: object) -> None:
        """End the tool call that a block answers; an answer to a call nobody saw, of an earlier session say, is no event."""
        if isinstance(block, ToolResultBlock | ServerToolResultBlock) and block.tool_use_id in self._open_calls:
            failed = isinstance(block, ToolResultBlock) and bool(block.is_error)
            await self._end_call(block.tool_use_id, success=not failed, output=_text_of(block.content))

    async def _end_call(self, call_id: str, *, success: bool, output: str) -> None:
        start, since = self._open_calls.pop(call_id)
        call = {"id": call_id, "parent_id": start.parent_id, "name": start.name}
        took = round(time.monotonic() - since, 4)
        await self._emit(ToolEnd(at=time.time(), **call, success=success, output=output[:_SHORT], duration_seconds=took))

    async def _end_open_calls(self) -> None:
        for call_id in list(self._open_calls):
            await self._end_call(call_id, success=False, output="The agent ended before this call did.")

    async def _take_system(self, message: SystemMessage) -> None:
        """Take what the CLI says about itself; most of it is nobody's business."""
        data = message.data
        if isinstance(message, TaskStartedMessage):
            if data.get("is_backgrounded"):
                self._background.add(message.task_id)
        elif isinstance(message, TaskNotificationMessage):
            if message.task_id in self._background:
                words = _line(f"A task in the background ended ({message.status}): {message.summary}")
                await self._emit(Progress(at=time.time(), step="task", message=words))
        elif message.subtype == "init":
            self.run.session_id = str(data.get("session_id") or "")
        elif message.subtype in _WARNINGS:
            await self._emit(Warned(at=time.time(), message=_line(_WARNINGS[message.subtype].format_map(_Lenient(data)))))

    def _take_result(self, result: ResultMessage) -> None:
        """Take the end of the agent's work. There may be several, when tasks in the background have it go on; the last one counts."""
        run = self.run
        run.session_id = result.session_id or run.session_id
        run.permission_denials += len(result.permission_denials or [])
        run.usage = run.usage.plus(_usage(result))
        run.end_reason, run.detail = _end(result)
        if run.end_reason == "completed" and result.result and result.result != self._synthetic:
            run.answer = result.result


_WARNINGS: Mapping[str, str] = {
    "api_retry": "The model did not answer (HTTP {error_status}, {error}); it is asked again, {attempt} of at most {max_retries} times.",
    "model_fallback": "The model {original_model} is not available ({trigger}); {fallback_model} goes on in its place.",
    "compact_boundary": "The conversation has outgrown what the model can read; the agent goes on with a summary of it.",
}
"""System messages the user should hear about, and in which words."""


class _Lenient(dict[str, Any]):
    """The data of a system message, where a name may be missing."""

    def __missing__(self, name: str) -> str:
        return "?"


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


def agent_environment(plan: TurnPlan, view: View = INSIDE) -> dict[str, str]:
    """Return every environment variable of the CLI; the key is a word without meaning, the real one never comes here."""
    milliseconds = str(int(plan.limits.hard_seconds * 1000) + 60_000)
    return {
        **base_environment(view),
        "ANTHROPIC_UNIX_SOCKET": view.model_socket,
        "ANTHROPIC_BASE_URL": "http://model.internal",
        "ANTHROPIC_API_KEY": "held-by-the-service",
        **(dict.fromkeys(_SMALL_MODEL, plan.small_model) if plan.small_model else {}),
        "CLAUDE_CONFIG_DIR": view.config,
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


def _end(result: ResultMessage) -> tuple[EndReason, str]:
    """Judge why the agent ended, and say more about it. An unreachable model comes as subtype `success` with an error flag."""
    if result.subtype == "success" and not result.is_error:
        return "completed", ""
    if result.subtype == "error_max_turns":
        return "max_turns", "The agent used up its model calls."
    if result.subtype == "error_max_budget_usd":
        return "budget", "The agent used up its budget."
    said = (result.result or "; ".join(map(str, result.errors or [])))[:_SHORT]
    if result.terminal_reason in ("api_error", "prompt_too_long", "image_error"):
        return "model_error", said or "The model could not be reached."
    if result.terminal_reason in ("aborted_tools", "aborted_streaming"):
        return "interrupted", "The agent was interrupted."
    return "agent_error", said or f"The agent ended with {result.subtype!r}."


def _usage(result: ResultMessage) -> Usage:
    used: Mapping[str, Any] = result.usage or {}
    return Usage(
        input_tokens=_count(used.get("input_tokens")),
        cache_read_tokens=_count(used.get("cache_read_input_tokens")),
        cache_write_tokens=_count(used.get("cache_creation_input_tokens")),
        output_tokens=_count(used.get("output_tokens")),
    )


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _shortened(value: Any, depth: int = 0) -> Any:
    """Return arguments of a tool call with long texts cut, wherever they are."""
    if isinstance(value, str):
        return f"{value[:_SHORT]}… ({len(value)} characters)" if len(value) > _SHORT else value
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {name: _shortened(inner, depth + 1) for name, inner in value.items()}
    return [_shortened(inner, depth + 1) for inner in value] if isinstance(value, list) else value


def _text_of(content: object) -> str:
    """Return the text of a tool result; pictures and the like are named, not shown."""
    if isinstance(content, list):
        return "\n".join(map(_text_of, content))
    if isinstance(content, Mapping):
        return str(content["text"]) if "text" in content else f"[{content.get('type')}]"
    return "" if content is None else str(content)


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LINE else f"{flat[: _LINE - 1]}…"
