"""The status route under the portal's polling, beside turns at work."""

import asyncio
import json
import sys
from pathlib import Path
from statistics import median, quantiles

from orchestration_service.cli.bench.figure import Figure
from orchestration_service.cli.bench.stage import PROMPT, Stage, open_stage
from orchestration_service.scripted.script import Script

_TURNS = 20
_POLLS_PER_SECOND = 500
_SECONDS = 10
_WINDOWS = 3
_CONNECTIONS = 20


async def polls_beside_turns() -> list[Figure]:
    """Poll 500 times a second from another process while 20 turns run, and measure the answers."""
    async with open_stage(_slow_script(), far_model=True) as stage:
        operations = [await _start(stage) for _ in range(_TURNS)]
        await _all_at_work(stage, operations)
        windows = [await _poll(stage, operations) for _ in range(_WINDOWS)]
        still = [await stage.caller.status(operation) for operation in operations]
    running = sum(state["status"] == "InProgress" for state in still)
    late = sorted(quantiles(latencies, n=100)[98] for latencies in windows)
    every = [latency for latencies in windows for latency in latencies]
    detail = (
        f"median of {_WINDOWS} windows of {_SECONDS} s ({late[0]:.1f}–{late[-1]:.1f}), p50 {median(every):.2f} ms, "
        f"{len(every) / _SECONDS / _WINDOWS:.0f} polls/s, {running} of {_TURNS} turns still at work at the end"
    )
    return [Figure("status route p99 at 500 polls/s beside 20 turns", median(late), "ms", 10, detail)]


async def _start(stage: Stage) -> str:
    conversation, record = await stage.conversation(warm=False)
    return await stage.caller.start(stage.caller.completion(conversation, PROMPT, [record], model="claude-sonnet-4-5"))


async def _all_at_work(stage: Stage, operations: list[str]) -> None:
    """Wait until the model has answered each turn at least once."""
    waiting = set(operations)
    while waiting:
        for operation in list(waiting):
            state = await stage.caller.status(operation)
            if state["status"] != "InProgress" or state["result"]["completion_tokens"]:
                waiting.discard(operation)
        await asyncio.sleep(0.2)


async def _poll(stage: Stage, operations: list[str]) -> list[float]:
    task = {
        "base_url": str(stage.caller.http.base_url),
        "paths": [f"/instances/{stage.caller.instance_id}/async-completions/{operation}/status" for operation in operations],
        "headers": {name: value for name, value in stage.caller.http.headers.items() if name.lower().startswith("x-")},
        "per_second": _POLLS_PER_SECOND,
        "seconds": _SECONDS,
        "connections": _CONNECTIONS,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("poller.py")), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate(json.dumps(task).encode())
    latencies: list[float] = json.loads(said)
    return latencies


def _slow_script() -> Script:
    steps: list[dict[str, object]] = [
        {
            "text": f"Step {number}.",
            "delay_seconds": 3.0,
            "tool_use": [{"name": "Bash", "input": {"command": f"echo {number}", "description": "Say a number"}}],
        }
        for number in range(1, 40)
    ]
    return Script.model_validate({"name": "slow", "description": "A model that takes its time.", "steps": [*steps, {"text": "Done."}]})
