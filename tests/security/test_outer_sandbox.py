"""What hostile code finds inside a sandbox of the local provider: nothing of the host, no way out, and bounds."""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_client.conformance.container import delete, download, execute, listing, upload
from context_client.sandboxes import LocalSandboxes, LocalSandboxSettings, SandboxLimits
from context_client.sandboxes.limits import WRITABLE_PLACES

pytestmark = pytest.mark.anyio

SECRET = f"secret-{uuid.uuid4()}"
SMALL = dict.fromkeys(WRITABLE_PLACES, 8 << 20) | {"/run/claude-code": 64 << 20, "/mnt/data": 128 << 20}


@pytest.fixture(scope="module")
async def sandboxes(anyio_backend: str) -> AsyncIterator[LocalSandboxes]:
    """Started with a secret in the environment of this process, as a service has it."""
    os.environ["ANTHROPIC_API_KEY"] = SECRET
    limits = SandboxLimits(places=SMALL, processes=100)
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False, limits=limits)) as sandboxes:
        yield sandboxes
    del os.environ["ANTHROPIC_API_KEY"]


@asynccontextmanager
async def open_client(sandboxes: LocalSandboxes, session_id: str) -> AsyncIterator[httpx.AsyncClient]:
    endpoint = await sandboxes.endpoint(session_id=session_id, upn="one@example.test")
    async with httpx.AsyncClient(transport=endpoint.transport, base_url=endpoint.base_url, timeout=60) as client:
        yield client


@pytest.fixture
async def client(sandboxes: LocalSandboxes, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(sandboxes, "hostile") as client:
        await delete(client)
        yield client


async def seen(client: httpx.AsyncClient, expression: str) -> Any:
    """Give the value of an expression inside the sandbox."""
    detail = await execute(client, f"import os, pathlib, socket, subprocess\nseen = {expression}\nseen")
    assert detail["error"] == "", detail
    return json.loads(detail["results"]["seen"])


@pytest.fixture(scope="module")
def host_port() -> Iterator[int]:
    """A listener on the host's loopback that the host itself can reach."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        yield port


async def test_only_loopback_and_no_route(client: httpx.AsyncClient) -> None:
    assert await seen(
        client, "os.listdir('/sys/class/net') if os.path.exists('/sys/class/net') else [n for _, n in socket.if_nameindex()]"
    ) == ["lo"]
    assert await seen(client, "pathlib.Path('/proc/net/route').read_text().splitlines()[1:]") == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        pytest.param("socket.getaddrinfo('example.com', 443)", "gaierror", id="names"),
        pytest.param("socket.create_connection(('192.0.2.1', 443), 3)", "OSError", id="addresses"),
        pytest.param("socket.create_connection(('169.254.169.254', 80), 3)", "OSError", id="cloud metadata"),
        pytest.param("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "PermissionError", id="raw sockets"),
    ],
)
async def test_nobody_is_reached(client: httpx.AsyncClient, call: str, error: str) -> None:
    assert error in (await execute(client, f"import socket\n{call}"))["error"]


async def test_the_hosts_loopback_is_another_one(client: httpx.AsyncClient, host_port: int) -> None:
    assert (
        "Connection refused" in (await execute(client, f"import socket\nsocket.create_connection(('127.0.0.1', {host_port}), 3)"))["error"]
    )


async def test_abstract_sockets_of_the_host_are_unreachable(client: httpx.AsyncClient) -> None:
    name = f"\0{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        detail = await execute(client, f"import socket\nsocket.socket(socket.AF_UNIX).connect({name!r})")
    assert "refused" in detail["error"]


async def test_files_of_the_host_are_absent(client: httpx.AsyncClient, short_directory: Path) -> None:
    (short_directory / "marker").write_text(SECRET)
    paths = [
        "/etc/shadow",
        "/etc/hostname",
        "/root",
        "/var",
        "/sys",
        "/boot",
        str(Path.home()),
        str(short_directory / "marker"),
        os.environ.get("TMPDIR", "/nowhere"),
    ]
    found = await seen(client, f"[path for path in {paths!r} if path != '/tmp' and os.path.exists(path)]")
    assert found == []
    assert set(await seen(client, "os.listdir('/etc')")) <= {"passwd", "group", "hosts", "nsswitch.conf", "alternatives", "ld.so.cache"}
    assert "root:x" in await seen(client, "pathlib.Path('/etc/passwd').read_text()")
    assert "cc-" not in str(await seen(client, "os.listdir('/tmp')"))


async def test_the_secret_is_nowhere(client: httpx.AsyncClient) -> None:
    """Neither in an environment, nor a command line, nor the memory of any process in there."""
    code = f"""
import os, pathlib, re
needle = bytes(reversed({SECRET[::-1].encode()!r}))
me, found, read = os.getpid(), [], 0
for process in pathlib.Path('/proc').glob('[0-9]*'):
    for name in ('environ', 'cmdline'):
        try: found += [str(process / name)] if needle in (process / name).read_bytes() else []
        except OSError: pass
    if int(process.name) == me: continue
    try:
        with open(process / 'mem', 'rb', 0) as memory:
            for line in (process / 'maps').read_text().splitlines():
                start, end = (int(word, 16) for word in re.match('([0-9a-f]+)-([0-9a-f]+) r', line).groups())
                memory.seek(start)
                block = memory.read(end - start)
                read += len(block)
                found += [line] if needle in block else []
    except (OSError, AttributeError, ValueError, OverflowError): pass
found, read
"""
    detail = await execute(client, code)
    assert json.loads(detail["results"]["found"]) == [], detail


async def test_environment_is_the_sandboxs_own(client: httpx.AsyncClient) -> None:
    names = set(await seen(client, "dict(os.environ)"))
    assert "ANTHROPIC_API_KEY" not in names
    assert names <= {
        *("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "TMPDIR", "USER"),
        *("CLAUDE_CODE_BWRAP", "CLAUDE_CODE_BWRAP_LIBS", "LC_CTYPE"),
    }


async def test_processes_of_the_host_are_invisible(client: httpx.AsyncClient) -> None:
    commands = await seen(client, "[p.read_bytes().decode(errors='replace') for p in pathlib.Path('/proc').glob('[0-9]*/cmdline')]")
    assert 2 <= len(commands) <= 10
    assert not any("pytest" in command for command in commands)
    assert await seen(client, "socket.gethostname()") == "sandbox"
    assert await seen(client, "[os.getuid(), os.getgid(), os.getgroups()]") in (
        [1000, 1000, []],
        [1000, 1000, [1000]],
        [1000, 1000, [65534]],
    )


async def test_nothing_but_the_named_places_is_writable(client: httpx.AsyncClient) -> None:
    code = """
import os
writable = []
for root, directories, _ in os.walk('/'):
    if root in {'/proc', '/dev/pts'}: directories.clear()
    try: open(root + '/.probe', 'w').close(); os.remove(root + '/.probe'); writable.append(root)
    except OSError: pass
    if root.count('/') > 3: directories.clear()
places = sorted(w for w in writable if not any(w.startswith(o + '/') for o in writable))
places
"""
    detail = await execute(client, code)
    assert json.loads(detail["results"]["places"]) == sorted(WRITABLE_PLACES)


async def test_no_descriptor_of_the_host_is_inherited(client: httpx.AsyncClient) -> None:
    """The server's listening socket is the only thing that came from outside."""
    links = await seen(client, "[os.readlink(f'/proc/{p}/fd/{f}') for p in ('1', '2') for f in os.listdir(f'/proc/{p}/fd')]")
    assert not [link for link in links if not link.startswith(("/dev/null", "socket:", "pipe:", "anon_inode:", "/memfd:"))]


async def test_privileges_cannot_be_gained(client: httpx.AsyncClient) -> None:
    status = await seen(client, "dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)")
    assert (status["NoNewPrivs"], status["CapEff"], status["CapPrm"], status["CapBnd"]) == ("1", "0" * 16, "0" * 16, "0" * 16)
    for call in ("os.setuid(0)", "os.setgid(0)", "os.chroot('/tmp')", "os.nice(-1)"):
        assert "Error" in (await execute(client, f"import os; {call}"))["error"], call


async def test_a_nested_sandbox_with_its_own_proc_works(client: httpx.AsyncClient) -> None:
    """The agent's own wall needs it."""
    words = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/mnt/data", "ls", "/proc"]
    listed = (await seen(client, f"subprocess.run({words!r}, capture_output=True, text=True, check=True).stdout")).split()
    assert [name for name in listed if name.isdigit()] in (["1", "2"], ["1"])


async def test_fork_bomb_is_bounded_and_the_server_survives(client: httpx.AsyncClient) -> None:
    code = "import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(30)\nexcept BlockingIOError as e: print('stopped', e)\n"
    detail = await execute(client, code)
    assert "stopped" in detail["output"]
    await delete(client)
    assert (await execute(client, "print('alive')"))["output"] == "alive\n"


async def test_full_disk_is_told_and_the_server_survives(client: httpx.AsyncClient) -> None:
    detail = await execute(client, "with open('big', 'wb') as f:\n  while True: f.write(bytes(1 << 20))")
    assert "No space left on device" in detail["error"]
    answer = await upload(client, "more", b"x" * 100_000)
    assert answer.status_code == 507
    assert "no room left" in answer.json()["detail"]
    assert list(await listing(client)) == ["big"], "the half upload is gone"
    await delete(client)
    assert (await upload(client, "more", b"x")).is_success


@pytest.mark.parametrize(
    "name",
    ["../x", "../data2x", "/etc/passwd", "a/../../x", "n" * 300, "\N{SLIGHTLY SMILING FACE}/../../x"],
    ids=["climbs", "sibling", "absolute", "climbs later", "300 characters", "emoji climbs"],
)
async def test_bad_names_are_refused(client: httpx.AsyncClient, name: str) -> None:
    assert (await upload(client, name, b"x")).status_code == 400
    assert (await download(client, name)).status_code == 400
    assert await listing(client) == {}


async def test_name_with_nul_is_refused(client: httpx.AsyncClient) -> None:
    assert (await download(client, "a\0b")).status_code == 400
    assert (await upload(client, "a\0b", b"x")).status_code == 400


@pytest.mark.parametrize(
    ("name", "size"), [("\N{SLIGHTLY SMILING FACE}.bin", 10), ("empty", 0), ("large.bin", 100 << 20)], ids=["emoji", "0 bytes", "100 MB"]
)
async def test_bytes_come_back(client: httpx.AsyncClient, name: str, size: int) -> None:
    content = os.urandom(1 << 20) * (size >> 20) if size >= 1 << 20 else os.urandom(size)
    assert (await upload(client, name, content)).is_success
    assert (await download(client, name)).content == content


async def test_other_sandboxes_are_unreachable(sandboxes: LocalSandboxes, client: httpx.AsyncClient) -> None:
    """Neither their files nor their sockets; even a socket's exact path leads nowhere."""
    async with open_client(sandboxes, "victim") as victim:
        await upload(victim, "of-the-victim", SECRET.encode())
        endpoint = await sandboxes.endpoint(session_id="victim", upn="one@example.test")
        path = str(endpoint.transport._sandbox.socket_path)  # type: ignore[union-attr]
        assert "No such file" in (await execute(client, f"import socket\nsocket.socket(socket.AF_UNIX).connect({path!r})"))["error"]
        assert await seen(client, "[r for r, _, files in os.walk('/') if 'of-the-victim' in files and not r.startswith('/proc')]") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each sandbox a user of its own")
async def test_each_sandbox_has_a_user_of_its_own(sandboxes: LocalSandboxes, client: httpx.AsyncClient) -> None:
    users = set()
    for session_id in ("hostile", "second user"):
        endpoint = await sandboxes.endpoint(session_id=session_id, upn="one@example.test")
        users.add(endpoint.transport._sandbox.user)  # type: ignore[union-attr]
    assert len(users) == 2
    assert min(users) >= 900_000


def test_threads_of_this_test_are_few() -> None:
    """Sandboxes must not cost the service a thread each for long."""
    deadline = time.monotonic() + 5
    while threading.active_count() > 40 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert threading.active_count() <= 40
