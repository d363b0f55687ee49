"""The life of containers: started on first use, shared, counted, ended for a reason, gone without trace."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread

from context_client.conformance.container import execute, listing, upload
from context_client.sandboxes import SandboxEnded, SandboxesClosed, SandboxPoolFull, SandboxStartFailed, SandboxUnavailable
from context_client.sandboxes.containers import (
    ContainerLimits,
    ContainerSandboxes,
    ContainerSandboxSettings,
    SandboxMismatch,
)
from context_client.size import SandboxSize

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
USER = "one@example.test"
Settings = Callable[..., ContainerSandboxSettings]
Speak = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@asynccontextmanager
async def opened(settings: ContainerSandboxSettings) -> AsyncIterator[ContainerSandboxes]:
    async with ContainerSandboxes(settings) as sandboxes:
        yield sandboxes


async def ours(api: Any, settings: ContainerSandboxSettings) -> list[dict[str, Any]]:
    """All containers of an instance, as the engine sees them."""
    chosen = {"label": [f"claude-code-sandbox={settings.instance_id}"]}
    return list(await to_thread.run_sync(lambda: api.containers(all=True, filters=chosen)))


async def test_callers_share_one_container_per_user_and_session(sandboxes: ContainerSandboxes) -> None:
    """Twenty at once start one; another user's session of the same name is another container."""
    found = []

    async def ask() -> None:
        found.append(await sandboxes.endpoint(session_id="shared", upn=USER))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
    assert all(endpoint is found[0] for endpoint in found)
    assert await sandboxes.endpoint(session_id="shared", upn="two@example.test") != found[0]


async def test_sessions_do_not_see_each_other(sandboxes: ContainerSandboxes, speak: Speak) -> None:
    async with speak(sandboxes, "first") as first, speak(sandboxes, "second") as second:
        await upload(first, "mine", b"x")
        await execute(first, "open('/tmp/mine', 'w').close()")
        assert await listing(second) == {}
        assert (await execute(second, "import os; print(os.listdir('/tmp'))"))["output"] == "[]\n"


async def test_neither_name_nor_label_tells_whose_it_is(quick: Settings, engine_api: Any) -> None:
    settings = quick(instance_id="told")
    async with opened(settings) as sandboxes:
        await sandboxes.endpoint(session_id="code-of-dana", upn="dana@example.test")
        (record,) = await ours(engine_api, settings)
        assert "dana" not in str(record)
        assert {name.rpartition(".")[2] for name in record["Labels"] if "sandbox." in name} == {"owner", "place", "session", "created"}


async def test_idle_container_is_silently_replaced_by_an_empty_one(quick: Settings, engine_api: Any, speak: Speak) -> None:
    settings = quick(cooldown_seconds=1.0)
    async with opened(settings) as sandboxes:
        async with speak(sandboxes, "idle") as client:
            await upload(client, "file", b"x")
            await execute(client, "import time; time.sleep(2.5)")
            assert list(await listing(client)) == ["file"], "one that works is not idle"
        with anyio.fail_after(20):
            while await ours(engine_api, settings):
                await anyio.sleep(0.2)
        async with speak(sandboxes, "idle") as client:
            assert await listing(client) == {}


async def test_a_full_pool_ends_the_container_that_surely_idles(quick: Settings) -> None:
    async with opened(quick(maximum=1, spare_idle_seconds=0.5)) as sandboxes:
        await sandboxes.endpoint(session_id="a", upn=USER)
        with pytest.raises(SandboxPoolFull, match="All 1 sandboxes"):
            await sandboxes.endpoint(session_id="b", upn=USER)
        await anyio.sleep(0.6)
        await sandboxes.endpoint(session_id="b", upn=USER)


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        pytest.param("kill", "killed from outside", id="killed"),
        pytest.param("remove", "removed from outside|killed from outside", id="removed"),
    ],
)
async def test_what_happens_from_outside_is_told_once(quick: Settings, engine_api: Any, speak: Speak, deed: str, reason: str) -> None:
    settings = quick(instance_id=f"outside-{deed}")
    async with opened(settings) as sandboxes:
        async with speak(sandboxes, "s") as client, anyio.create_task_group() as group:

            async def run() -> None:
                with pytest.raises(httpx.TransportError, match=reason):
                    await execute(client, "import time; time.sleep(30)")

            group.start_soon(run)
            await anyio.sleep(0.5)
            (record,) = await ours(engine_api, settings)
            options: dict[str, Any] = {"force": True} if deed == "remove" else {}
            await to_thread.run_sync(lambda: getattr(engine_api, f"{deed}{'_container' if options else ''}")(record["Id"], **options))
        with pytest.raises(SandboxEnded, match=reason):
            await sandboxes.endpoint(session_id="s", upn=USER)
        async with speak(sandboxes, "s") as client:
            assert await listing(client) == {}


async def fill(client: httpx.AsyncClient) -> None:
    """Files in memory count as memory, and no killed process gives them back."""
    for _ in range(5):
        await execute(client, "with open('/workspace/big', 'ab') as file:\n  while True: file.write(b'x' * 65536)")


async def test_a_server_that_runs_out_of_memory_is_told(quick: Settings, speak: Speak) -> None:
    async with opened(quick(limits=ContainerLimits(memory_bytes=160 << 20))) as sandboxes:
        async with speak(sandboxes, "greedy") as client:
            with pytest.raises(httpx.TransportError, match="160 MiB"):
                await fill(client)
        with pytest.raises(SandboxEnded, match="160 MiB"):
            await sandboxes.endpoint(session_id="greedy", upn=USER)


async def test_a_container_has_the_size_that_was_asked_for(quick: Settings, engine_api: Any, speak: Speak) -> None:
    """What the kernel's control groups say from inside, and the places' own sizes; a live one keeps what it has."""
    asked = SandboxSize(cpus=0.5, memory_bytes=300 << 20, processes=70, disk_bytes=100 << 20)
    code = """
import os, pathlib
root = pathlib.Path('/sys/fs/cgroup')
def first(*names): return next((root / name).read_text() for name in names if (root / name).exists())
quota = first('cpu.max', 'cpu/cpu.cfs_quota_us').split()
period = quota[1] if len(quota) > 1 else first('cpu/cpu.cfs_period_us')
print(int(quota[0]) / int(period), first('memory.max', 'memory/memory.limit_in_bytes'), first('pids.max', 'pids/pids.max'))
space = os.statvfs('/workspace')
print(space.f_blocks * space.f_frsize)
"""
    settings = quick(instance_id="sized")
    async with opened(settings) as sandboxes:
        endpoint = await sandboxes.endpoint(session_id="s", upn=USER, size=asked)
        assert endpoint.size == asked
        async with speak(sandboxes, "s") as client:
            assert (await execute(client, code))["output"].split() == ["0.5", str(300 << 20), "70", str((100 << 20) * 3 // 10)]
        assert await sandboxes.endpoint(session_id="s", upn=USER, size=SandboxSize(cpus=1)) is endpoint
        (record,) = await ours(engine_api, settings)
        host = (await to_thread.run_sync(lambda: engine_api.inspect_container(record["Id"])))["HostConfig"]
        assert (host["NanoCpus"], host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (5 * 10**8, 300 << 20, 300 << 20, 70)


async def test_memory_of_one_command_ends_that_command_only(quick: Settings, speak: Speak) -> None:
    limits = ContainerLimits(memory_bytes=256 << 20)
    async with opened(quick(limits=limits)) as sandboxes, speak(sandboxes, "greedy") as client:
        assert "SIGKILL" in (await execute(client, "x = b'x' * (400 << 20)"))["error"]
        assert (await execute(client, "print(1)"))["output"] == "1\n"


@pytest.mark.parametrize(
    "victim", [pytest.param("runner_image.server\0--fd", id="server"), pytest.param("/run/service/meet", id="watcher")]
)
async def test_what_is_killed_from_inside_ends_the_container(quick: Settings, speak: Speak, victim: str) -> None:
    code = f"""
import os, pathlib, time
for folder in pathlib.Path('/proc').glob('[0-9]*'):
    words = (folder / 'cmdline').read_text()
    if {victim!r} in words and folder.name != '1' and int(folder.name) != os.getpid():
        os.kill(int(folder.name), 9)
time.sleep(20)
"""
    async with opened(quick()) as sandboxes:
        async with speak(sandboxes, "killed") as client:
            with pytest.raises(httpx.TransportError):
                with anyio.fail_after(15):
                    await execute(client, code)
        with pytest.raises(SandboxEnded, match="from inside"):
            await sandboxes.endpoint(session_id="killed", upn=USER)


async def test_nothing_is_left_after_closing(quick: Settings, engine_api: Any, short_directory: Path) -> None:
    """No container, volume, process, mount or file."""
    settings = quick(instance_id="gone", run_directory=short_directory)
    before = await left_behind(engine_api, short_directory)
    async with opened(settings) as sandboxes:
        endpoint = await sandboxes.endpoint(session_id="gone", upn=USER)
        (record,) = await ours(engine_api, settings)
        inspected = await to_thread.run_sync(engine_api.inspect_container, record["Id"])
        pid = inspected["State"]["Pid"]
    assert await ours(engine_api, settings) == []
    assert await left_behind(engine_api, short_directory) == before
    assert not await anyio.Path(f"/proc/{pid}").exists()
    with pytest.raises(SandboxesClosed):
        await sandboxes.endpoint(session_id="gone", upn=USER)
    assert endpoint.transport is not None
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url) as client:
        with pytest.raises(httpx.ConnectError, match="service stopped"):
            await client.get("/health")


async def test_a_start_that_is_given_up_leaves_nothing(quick: Settings, engine_api: Any) -> None:
    settings = quick(instance_id="given-up")
    async with opened(settings) as sandboxes:
        for seconds in (0.02, 0.1, 0.2):
            with anyio.move_on_after(seconds):
                await sandboxes.endpoint(session_id="a", upn=USER)
            assert await ours(engine_api, settings) == []
        await sandboxes.endpoint(session_id="a", upn=USER)


SERVICE = """
import anyio, sys
from pathlib import Path
from context_client.sandboxes.containers import ContainerSandboxes, ContainerSandboxSettings
async def main():
    settings = ContainerSandboxSettings(
        instance_id=sys.argv[1], image=sys.argv[2], prewarm_runner=False, run_directory=Path(sys.argv[3])
    )
    async with ContainerSandboxes(settings) as sandboxes:
        await sandboxes.endpoint(session_id="a", upn="u")
        print("ready", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.fixture
def killed_service(quick: Settings, short_directory: Path) -> Iterator[ContainerSandboxSettings]:
    """A service that had a container and was killed without a chance to clean up."""
    settings = quick(instance_id=f"dead-{os.getpid()}", run_directory=short_directory)
    words = [sys.executable, "-c", SERVICE, settings.instance_id, settings.image, str(short_directory)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        yield settings


async def test_a_killed_service_leaves_nothing_that_runs_and_the_next_one_sweeps(
    killed_service: ContainerSandboxSettings, engine_api: Any, short_directory: Path
) -> None:
    with anyio.fail_after(10):
        while [record for record in await ours(engine_api, killed_service) if record["State"] == "running"]:
            await anyio.sleep(0.05)
    assert len(await ours(engine_api, killed_service)) == 1
    async with opened(killed_service) as second:
        assert await ours(engine_api, killed_service) == []
        await second.endpoint(session_id="a", upn=USER)
        async with opened(killed_service):  # a neighbour of the same instance
            assert len(await ours(engine_api, killed_service)) == 1, "what a living service owns is left alone"
    assert [path async for path in anyio.Path(short_directory).iterdir()] == []


async def test_another_version_is_refused_and_leaves_nothing(quick: Settings, engine_api: Any) -> None:
    settings = quick(instance_id="version", expected={"status": "ready", "version": "0.0.0-other"})
    async with opened(settings) as sandboxes:
        with pytest.raises(SandboxMismatch, match=r"its version is .* and must be '0\.0\.0-other'.*Build the image"):
            await sandboxes.endpoint(session_id="a", upn=USER)
        assert await ours(engine_api, settings) == []


async def test_an_image_that_cannot_serve_says_why(quick: Settings, engine_api: Any) -> None:
    settings = quick(instance_id="mute", python="cat")
    async with opened(settings) as sandboxes:
        with pytest.raises(SandboxStartFailed, match="did not start.*(?s:cat)"):
            await sandboxes.endpoint(session_id="a", upn=USER)
        assert await ours(engine_api, settings) == []


async def test_a_place_on_disk_has_its_size_or_is_refused(quick: Settings, engine_api: Any, speak: Speak, short_directory: Path) -> None:
    """Few machines have quotas; the others say so, and never give a volume without a limit."""
    settings = quick(instance_id="disk", limits=ContainerLimits(on_disk=frozenset({"/workspace"})))
    before, outcome = await left_behind(engine_api, short_directory), ""
    async with opened(settings) as sandboxes:
        try:
            async with speak(sandboxes, "a") as client:
                said = await execute(client, "import os; s = os.statvfs('/workspace'); print(s.f_blocks * s.f_frsize >> 20)")
                outcome = said["output"].strip()
        except SandboxStartFailed as error:
            outcome = str(error)
    assert outcome == "768" or "quota" in outcome
    assert await left_behind(engine_api, short_directory) == before


async def test_a_missing_image_is_told_and_never_pulled(quick: Settings) -> None:
    with pytest.raises(SandboxUnavailable, match=r"no image 'no-such-image:1', and none is ever pulled.*\n.*Build"):
        async with opened(quick(image="no-such-image:1")):
            pass


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param("unix:///nowhere/engine.sock", "no container engine answers", id="silent"),
        pytest.param("tcp://192.0.2.1:2375", "not reached over a Unix socket", id="remote"),
    ],
)
async def test_no_engine_is_told(quick: Settings, url: str, words: str) -> None:
    with pytest.raises(SandboxUnavailable, match=words):
        async with opened(quick(engine_url=url)):
            pass


async def test_says_what_it_is(sandboxes: ContainerSandboxes) -> None:
    facts = sandboxes.describe()
    assert (facts.kind, facts.network, facts.separate_user) == ("container", "none", os.geteuid() != 10001)
    assert set(facts.enforced.values()) == {"kernel"}
    assert "2048 MiB, 2 CPU" in facts.in_words()


async def left_behind(api: Any, directory: Path) -> tuple[list[str], ...]:
    """What a container could leave on this machine."""

    def look() -> tuple[list[str], ...]:
        volumes = sorted(volume["Name"] for volume in api.volumes({"dangling": True})["Volumes"] or ())
        mounts = sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        return volumes, [name for name in mounts if "fllm" in name], sorted(path.name for path in directory.iterdir())

    return await to_thread.run_sync(look)
