"""A turn in a container of a quarter of a processor and 512 MiB: it completes, and what is not the agent's own CLI needs little memory.

The short form is in every run; `./dev test -m faults -s -k small_container` makes thirty tool calls and prints the figures.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from anyio import to_thread

from context_client.sandboxes.containers import ContainerLimits, ContainerSandboxes, ContainerSandboxSettings
from orchestration_service.scripted.script import Step
from tests.images.building import engine_call, find_engine
from tests.journeys.beside import open_stage_beside
from tests.journeys.places import Places
from tests.stage import bash, calls, packed, says
from workflow_schemas.sources import own_sources, sources_digest

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

MIB = 1024 * 1024
LIMITS = ContainerLimits(cpus=0.25, memory_bytes=512 * MIB)
MOST_BYTES = 120_000_000
PEAK = "cat /sys/fs/cgroup/memory.peak 2>/dev/null || cat /sys/fs/cgroup/memory/memory.max_usage_in_bytes"
ROLES = {"runner_image.server": "server", "runner_image.server.zygote": "fork server", "runner_image.runner": "runner"}


@dataclass
class Watch:
    """Looks at the memory of a container's processes from outside, where it costs the container nothing."""

    container: str
    is_blind: bool = False
    most: int = 0
    parts: Counter[str] = field(default_factory=Counter)

    async def keep_looking(self) -> None:
        while True:
            await to_thread.run_sync(self.look)
            await asyncio.sleep(0.5)

    def look(self) -> None:
        commands, parents = {}, {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.container in (process / "cgroup").read_text():
                    commands[process] = (process / "cmdline").read_text().split("\0")
                    parents[process] = process.parent / (process / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue  # it has ended
        parts: Counter[str] = Counter()
        for process, words in commands.items():
            if not _is_of_the_cli(process, commands, parents):
                parts[_role(words)] += self._memory(process)
        if parts.total() > self.most:
            self.most, self.parts = parts.total(), parts

    def _memory(self, process: Path) -> int:
        """Its share of all memory it uses, what it has in common with others divided among them."""
        try:
            lines = (process / "smaps_rollup").read_text().splitlines()
        except PermissionError:
            self.is_blind = True
            return 0
        except OSError:
            return 0  # it has ended
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _is_of_the_cli(process: Path, commands: dict[Path, list[str]], parents: dict[Path, Path]) -> bool:
    """Whether it is the CLI, or something that the CLI has started."""
    while process in commands:
        if Path(commands[process][0]).name == "claude":
            return True
        process = parents[process]
    return False


def _role(words: list[str]) -> str:
    return next((role for module, role in ROLES.items() if module in words), "other")


@asynccontextmanager
async def watched(instance: str) -> AsyncIterator[Watch]:
    """Watch the one container of an instance, as soon as it is there."""
    engine, label = find_engine(), f"label=claude-code-sandbox={instance}"
    while not (found := await to_thread.run_sync(lambda: engine_call(engine, "ps", "--quiet", "--no-trunc", "--filter", label).stdout)):
        await asyncio.sleep(0.2)
    watch = Watch(found.strip())
    looking = asyncio.create_task(watch.keep_looking())
    try:
        yield watch
    finally:
        looking.cancel()


def works(number: int) -> list[Step]:
    """As many tool calls, of all kinds in turn."""
    kinds = [
        lambda at: calls(("Write", {"file_path": f"/workspace/{at}.txt", "content": f"line {at}\n" * 200})),
        lambda at: calls(("Read", {"file_path": f"/workspace/{at - 1}.txt"})),
        lambda at: bash(f"sort -r /workspace/{at - 2}.txt | uniq -c > counted.txt; git status --short | wc -l"),
        lambda at: calls(("Grep", {"pattern": "line", "path": "/workspace", "output_mode": "count"})),
        lambda at: calls(("Edit", {"file_path": "/workspace/main.py", "old_string": f"v{at // 5}", "new_string": f"v{at // 5 + 1}"})),
    ]
    return [kinds[at % len(kinds)](at) for at in range(number)]


@pytest.mark.parametrize("number", [5, pytest.param(30, marks=pytest.mark.faults)])
async def test_a_small_container_is_enough(places: Places, tmp_path: Path, number: int) -> None:
    expected = {"source_digest": await to_thread.run_sync(lambda: sources_digest(own_sources()))}
    instance = f"small-{uuid.uuid4()}"
    settings = ContainerSandboxSettings(instance_id=instance, image=await places.image(), limits=LIMITS, expected=expected)
    async with ContainerSandboxes(settings) as sandboxes, open_stage_beside(tmp_path, sandboxes) as stage:
        repository = packed({"r/main.py": "print('v0')\n", "r/.gitignore": "*.log\n"})
        model = stage.model(calls(("Read", {"file_path": "/workspace/main.py"})), *works(number - 1), says("Done."))
        record = await stage.caller.upload("small", "repo.tar", repository)
        since = time.monotonic()
        operation = await stage.caller.start(model.completion("Work.", [record], conversation="small"))
        async with watched(instance) as watch:
            turn = await stage.finished(operation)
        seconds = time.monotonic() - since
        peak = await to_thread.run_sync(lambda: int(engine_call(find_engine(), "exec", watch.container, "sh", "-c", PEAK).stdout))
        ends = [event["success"] async for event in stage.caller.events(operation) if event["type"] == "tool_end"]
    shares = ", ".join(f"{role} {size / 1e6:.0f}" for role, size in watch.parts.most_common())
    print(f"\n{number} tool calls in {seconds:.0f} s with 0.25 CPU and 512 MiB: peak {peak / 1e6:.0f} MB, files in memory included;")
    print(f"all but the CLI at most {watch.most / 1e6:.0f} MB ({shares})")
    assert turn.status == "Completed", turn.answer
    assert ends == [True] * number
    assert turn.receipt.usage.model_calls == number + 1
    if watch.is_blind:
        pytest.skip("only root sees what memory another user's processes need; all else was as it should be")
    assert 0 < watch.most <= MOST_BYTES, watch.parts
