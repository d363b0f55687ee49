"""The mailbox by itself: one exchange, many executions at once, and the bytes of a late model call."""

import asyncio
import time
import zlib
from statistics import median, quantiles

from orchestration_service.cli.bench import Figure
from orchestration_service.cli.bench.stage import open_stage
from orchestration_service.scripted.script import Script, shipped_script
from orchestration_service.sessions import Session
from workflow_schemas.delta import Bodies, compress
from workflow_schemas.mailbox import Exchange, Message, Reply, encode

_EXCHANGES = 200
_CALLS = 22
_MEASURED_CALL = 20


async def exchange() -> list[Figure]:
    """Measure one exchange through the Context API to the runner in a local sandbox and back."""
    async with open_stage(shipped_script("edit_eight")) as stage:
        conversation, _ = await stage.conversation(warm=True)
        session = Session(stage.caller.context, stage.caller.identity, await stage.session(conversation))
        seconds = []
        for _ in range(_EXCHANGES):
            since = time.perf_counter()
            await session.exchange(Exchange(run_id="bench-exchange"))
            seconds.append((time.perf_counter() - since) * 1000)
    detail = f"p95 {quantiles(seconds, n=20)[-1]:.1f} ms of {_EXCHANGES}, over a real socket to the Context API"
    return [Figure("one exchange on the local provider, p50", median(seconds), "ms", 15, detail)]


async def executions() -> list[Figure]:
    """Measure a hundred executions that sleep 0.2 s, at once in one sandbox."""
    async with open_stage(shipped_script("edit_eight")) as stage:
        conversation, _ = await stage.conversation(warm=True)
        session = await stage.session(conversation)

        async def once() -> str:
            result = await stage.caller.context.execute_code(stage.caller.identity, session, "import time; time.sleep(0.2); print('ok')")
            return result.standard_output

        rounds = []
        for _ in range(3):
            since = time.perf_counter()
            said = await asyncio.gather(*(once() for _ in range(100)))
            rounds.append(time.perf_counter() - since)
            assert said == ["ok\n"] * 100
    return [Figure("100 concurrent executions of `sleep 0.2`", median(rounds), "s", 1.0, f"best {min(rounds):.2f} s of 3")]


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
    commands = [f'for i in 1 2 3 4 5 6 7 8; do echo "$i $((i * {number})) $(date +%N)"; done' for number in range(1, _CALLS)]
    steps: list[dict[str, object]] = [
        {
            "text": f"Step {number}: look at the numbers.",
            "tool_use": [{"name": "Bash", "input": {"command": command, "description": "Count"}}],
        }
        for number, command in enumerate(commands, start=1)
    ]
    return Script.model_validate({"name": "long", "description": "Many calls.", "steps": [*steps, {"text": "Done."}]})
