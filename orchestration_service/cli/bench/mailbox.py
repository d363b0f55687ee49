"""The mailbox by itself: one exchange, many executions at once, and the bytes of a late model call."""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from pydantic import SecretStr

from context_client import ContextClient, EmbeddedContext, UserIdentity, connect
from context_client.embedded.provider import SandboxProvider
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes.local import LocalSandboxes
from orchestration_service.cli.bench.figure import Figure
from orchestration_service.cli.bench.stage import WARM_SECONDS, open_stage
from orchestration_service.errors import ServiceError
from orchestration_service.scripted.script import Script
from orchestration_service.sessions import Session, SessionSettings, open_session
from workflow_schemas.delta import Bodies, compress
from workflow_schemas.mailbox import Exchange, Message, Reply, encode

_IDENTITY = UserIdentity(upn="bench@example.com")
_EXCHANGES = 200
_CALLS = 22
_MEASURED_CALL = 20


async def exchange() -> list[Figure]:
    """Measure one exchange with a sandbox of this machine."""
    async with LocalSandboxes() as sandboxes:
        return [await one_exchange("one exchange on the local provider, p50", 15, sandboxes)]


async def one_exchange(name: str, target: float, sandboxes: SandboxProvider) -> Figure:
    """Measure one exchange as the service makes it: through the embedded Context API to the runner in a sandbox and back.

    Args:
        name: What the figure is called.
        target: Milliseconds it must not be above.
        sandboxes: Makes the sandbox.
    """
    async with _open_context(sandboxes) as context:
        session = await _open_session(context)
        await session.exchange(Exchange(run_id="bench-exchange"))
        await asyncio.sleep(WARM_SECONDS)
        seconds = []
        for _ in range(_EXCHANGES):
            since = time.perf_counter()
            await session.exchange(Exchange(run_id="bench-exchange"))
            seconds.append((time.perf_counter() - since) * 1000)
    return Figure(name, median(seconds), "ms", target, f"p95 {quantiles(seconds, n=20)[-1]:.1f} ms")


async def executions() -> list[Figure]:
    """Measure a hundred executions that sleep 0.2 s, at once in one sandbox."""
    async with LocalSandboxes() as sandboxes, _open_context(sandboxes) as context:
        session = await _open_session(context)
        code = "import time; time.sleep(0.2); print('ok')"
        await context.execute_code(_IDENTITY, session.session_id, code)
        await asyncio.sleep(WARM_SECONDS)
        rounds = []
        for _ in range(5):
            since = time.perf_counter()
            results = await asyncio.gather(*(context.execute_code(_IDENTITY, session.session_id, code) for _ in range(100)))
            rounds.append(time.perf_counter() - since)
            if any(result.standard_output != "ok\n" for result in results):
                raise ServiceError("an execution did not say what it should")
    return [Figure("100 concurrent executions of `sleep 0.2`", median(rounds), "s", 1.0, f"median of 5, best {min(rounds):.2f} s")]


@asynccontextmanager
async def _open_context(sandboxes: SandboxProvider) -> AsyncIterator[ContextClient]:
    with TemporaryDirectory(prefix="claude-code-bench-") as folder:
        server = EmbeddedSettings(folder=Path(folder), instance_id="bench", api_key=SecretStr("bench-key"))
        providers = {SessionSettings().endpoint_provider: sandboxes}
        async with connect(EmbeddedContext(server=server), providers=providers) as context:
            yield context


async def _open_session(context: ContextClient) -> Session:
    return await open_session(context, _IDENTITY, agent_name="bench", conversation_id="bench", settings=SessionSettings())


async def model_call_bytes() -> list[Figure]:
    """Measure what model call 20 of a real conversation puts on the wire, both ways, against its new content compressed."""
    async with open_stage(_long_script()) as stage:
        conversation, record = await stage.conversation(warm=True)
        await stage.turn(conversation, record)
        bodies = stage.ear.bodies[:_CALLS]
    sizes = _wire_sizes(bodies)
    call = _MEASURED_CALL - 1
    before, body, after = bodies[call - 1], bodies[call], bodies[call + 1]
    new = len(zlib.compress(_new_part(before, body), 9)) + len(zlib.compress(_new_part(body, after)[: len(after) - len(body)], 9))
    detail = f"{sizes[call]} bytes on the wire against {new} compressed; the request itself has {len(body)}"
    return [Figure("bytes of model call 20 ÷ its new content compressed", sizes[call] / new, "", 1.3, detail)]


def _wire_sizes(bodies: list[bytes]) -> list[int]:
    """Return for each call the characters of the frames that carry its request out and an answer of the size of its new part in."""
    known, sizes = Bodies(), []
    for number, body in enumerate(bodies):
        name, base = known.closest(body)
        about = {"call_id": "0" * 32, "path": "/v1/messages", "headers": {}, "digest": "0" * 64, "base": name}
        request = Message(seq=number + 1, kind="model_request", body=about, data=compress(body, base))
        known.add(body)
        following = bodies[number + 1] if number + 1 < len(bodies) else body
        answer = Message(
            seq=number + 1,
            kind="model_answer",
            body={"call_id": "0" * 32, "status": 200},
            data=compress(_new_part(body, following)[: max(1, len(following) - len(body))], body),
        )
        out = len(encode(Reply(generation="0" * 32, ack=number, messages=(request,))))
        back = len(encode(Exchange(run_id="0" * 32, generation="0" * 32, ack=number, messages=(answer,), wait_seconds=20)))
        sizes.append(out + back)
    return sizes


def _new_part(before: bytes, after: bytes) -> bytes:
    """Return the bytes between the common beginning and the common end of two requests, as they stand in the later one."""
    start = next((at for at, (one, two) in enumerate(zip(before, after, strict=False)) if one != two), min(len(before), len(after)))
    end = 0
    while end < len(before) - start and end < len(after) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return after[start : len(after) - end]


def _long_script() -> Script:
    steps: list[dict[str, object]] = []
    for number in range(1, _CALLS):
        command = f'for i in 1 2 3 4 5 6 7 8; do echo "$i $((i * {number})) $(date +%N)"; done'
        tool = {"name": "Bash", "input": {"command": command, "description": "Count"}}
        steps.append({"text": f"Step {number}: look at the numbers.", "tool_use": [tool]})
    return Script.model_validate({"name": "long", "description": "Many calls.", "steps": [*steps, {"text": "Done."}]})
