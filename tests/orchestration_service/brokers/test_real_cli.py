"""The real CLI through a relay and the broker: what the gate lets through is enough, what is played back is accepted."""

import sys
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orchestration_service.brokers.call import ModelCall
from orchestration_service.brokers.model import ModelBroker
from orchestration_service.brokers.route import ModelParameters, ModelRoute
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from workflow_schemas.model_stream import message_to_sse

pytestmark = pytest.mark.anyio


class Relay:
    """Plays the part of the sandbox's relay: a request goes to the broker, the whole answer comes back as a stream."""

    def __init__(self, broker: ModelBroker, route: ModelRoute) -> None:
        self.broker = broker
        self.route = route
        self.remarks: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request of the CLI."""
        request = Request(scope, receive)
        call = ModelCall(
            await request.body(),
            path=f"{request.url.path}?{request.url.query}",
            anthropic_version=request.headers["anthropic-version"],
            anthropic_beta=request.headers.get("anthropic-beta"),
        )
        answer = await self.broker.complete(self.route, call)
        self.remarks |= set(answer.remarks)
        if answer.message is None:
            response: Response = JSONResponse(answer.error, answer.status)
        else:
            response = Response(b"".join(message_to_sse(answer.message)), media_type="text/event-stream")
        await response(scope, receive, send)


async def run_cli(tmp_path: Path, *steps: dict[str, Any]) -> tuple[ResultMessage, ScriptedModel, Relay]:
    """Let the CLI work through these steps behind the relay."""
    upstream = ScriptedModel(Script.model_validate({"name": "t", "steps": steps}), expected_key=SecretStr("real-key"))
    async with serve(upstream) as model, ModelBroker(first_wait_seconds=0.01) as broker:
        parameters = ModelParameters(temperature=0, max_tokens=8000)
        route = ModelRoute(base_url=model.base_url, api_key=SecretStr("real-key"), model="deployed", parameters=parameters)
        relay = Relay(broker, route)
        async with serve(relay, uds=tmp_path / "relay.sock") as endpoint:
            options = ClaudeAgentOptions(
                cwd=tmp_path,
                tools=["Read", "Bash"],
                permission_mode="bypassPermissions",
                setting_sources=[],
                verbatim_prompts=True,
                stderr=lambda line: print(line, file=sys.stderr),
                env={
                    "ANTHROPIC_UNIX_SOCKET": str(endpoint.uds),
                    "ANTHROPIC_BASE_URL": endpoint.base_url,
                    "ANTHROPIC_API_KEY": "placeholder",
                    "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                    "CLAUDE_CODE_MAX_RETRIES": "0",
                    "IS_SANDBOX": "1",
                },
            )
            messages = [message async for message in query(prompt="go", options=options)]
    result = messages[-1]
    assert isinstance(result, ResultMessage)
    return result, upstream, relay


async def test_a_turn_with_thinking_tools_and_a_fault_upstream(tmp_path: Path) -> None:
    """The CLI never learns that the upstream failed twice, nor which model answered under which key."""
    result, upstream, relay = await run_cli(
        tmp_path,
        {"thinking": "A look first.", "text": "Let me see.", "tool_use": [{"name": "Bash", "input": {"command": "pwd"}}]},
        {"text": "Däne 🙂", "malformed": "cut", "fault_times": 2, "usage": {"input_tokens": 11, "output_tokens": 5}},
    )
    assert (result.is_error, result.result, result.num_turns) == (False, "Däne 🙂", 2)
    assert [request.step for request in upstream.received] == ["steps[0]", "steps[1]", "steps[1]", "steps[1]"]
    sent = upstream.received[-1].body
    assert (sent["model"], sent["max_tokens"], "temperature" in sent) == ("deployed", 8000, False)
    assert any("thinking" in remark for remark in relay.remarks)


async def test_a_tool_input_cut_by_the_model_reaches_the_cli_as_it_came(tmp_path: Path) -> None:
    """The CLI tells the model about its broken input, and the run goes on."""
    broken = {"tool_use": [{"name": "Read"}], "malformed": "bad_tool_input"}
    result, upstream, _ = await run_cli(tmp_path, broken, {"text": "Done."})
    assert result.result == "Done."
    tool_result = upstream.received[-1].body["messages"][-1]["content"][0]
    assert tool_result["is_error"] is True
