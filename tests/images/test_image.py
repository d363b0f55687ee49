"""What the image is when it runs as it should: closed in, complete, and of this checkout."""

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from context_client.conformance.container import execute
from runner_image.image.starting import USER
from tests.images.building import HEALTH, ROOT, Container, container, engine_call
from workflow_schemas.sources import sources_digest

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # the first one to ask builds the image

Run = Callable[[str], Awaitable[Any]]

ORPHAN = """
import os, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if (orphan := os.fork()) == 0:
        os.close(reader); os.close(writer)
        time.sleep(0.3)
        os._exit(0)
    os.write(writer, str(orphan).encode())
    os._exit(0)
os.wait()
orphan = int(os.read(reader, 20))
status = open(f"/proc/{orphan}/status").read()
parent = int(status.split("PPid:")[1].split()[0])
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.05)
parent
"""


@pytest.fixture
def run(client: httpx.AsyncClient) -> Run:
    """Run code in the container and give the value of its last name."""

    async def inside(code: str) -> Any:
        detail = await execute(client, code)
        assert detail["error"] == "", detail
        return json.loads(next(iter(detail["results"].values())))

    return inside


def test_runs_the_code_of_this_checkout(sandbox: Container, image: str) -> None:
    told = sandbox.ask("/version")
    assert told["source_digest"] == sandbox.ask("/health")["source_digest"] == sources_digest(ROOT)
    labels = engine_call(sandbox.engine, "image", "inspect", "--format", "{{json .Config.Labels}}", image).stdout
    assert json.loads(labels)["org.foundationallm.claude-code.source-digest"] == told["source_digest"]
    assert json.loads(labels)["org.opencontainers.image.version"] == told["version"]


async def test_has_no_power(run: Run) -> None:
    """No root, no capability that could be gained, no new privileges, and the engine's system call filter."""
    status = await run("text = open('/proc/self/status').read()\ntext")
    found = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
    expected = str(USER if os.geteuid() == 0 else os.geteuid())
    assert found["Uid"] == found["Gid"] == [expected] * 4
    assert {int(found[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (found["NoNewPrivs"], found["Seccomp"]) == (["1"], ["2"])


def test_no_file_gives_its_owners_rights(sandbox: Container, image: str) -> None:
    """Looked for as root, who sees every folder."""
    words = ("find", image, "/", "-xdev", "-perm", "/6000", "-type", "f")
    assert engine_call(sandbox.engine, "run", "--rm", "--network", "none", "--user", "0", "--entrypoint", *words).stdout == ""


@pytest.mark.parametrize("place", ["/opt/claude-code/src", "/usr/local", "/etc", "/var/tmp"])
async def test_is_read_only(run: Run, place: str) -> None:
    code = f"""
import errno, os
try:
    os.mkdir("{place}/x")
    refused = ""
except OSError as error:
    refused = errno.errorcode[error.errno]
refused
"""
    assert await run(code) == "EROFS"


@pytest.mark.parametrize("place", ["/mnt/data", "/workspace", "/outputs", "/run/claude-code", "/tmp", "/home/agent"])
async def test_programs_run_from_writable_places(run: Run, place: str) -> None:
    """A build leaves its programs where it works."""
    code = f"""
import shutil, subprocess
shutil.copy("/usr/bin/true", "{place}/mine")
status = subprocess.run(["{place}/mine"]).returncode
status
"""
    assert await run(code) == 0


async def test_has_no_network(run: Run) -> None:
    assert await run("import socket\nnames = [name for _, name in socket.if_nameindex()]\nnames") == ["lo"]


@pytest.mark.parametrize("words", ["rg", "git", "gh", "node", "npm", "gcc", "make", "jq", "curl", "zip", "bwrap", "python3", "sqlite3"])
def test_program_answers(sandbox: Container, words: str) -> None:
    assert sandbox.run(words, "--version").stdout


@pytest.mark.parametrize(
    "words", [("unzip", "-v"), ("python3", "-m", "pytest", "--version"), ("python3", "-m", "venv", "--help")], ids=" ".join
)
def test_program_answers_otherwise(sandbox: Container, words: tuple[str, ...]) -> None:
    assert sandbox.run(*words).returncode == 0


def test_cli_is_the_one_of_the_pinned_sdk(sandbox: Container) -> None:
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert f"claude-agent-sdk=={sandbox.ask('/version')['agent_sdk']} " in locked
    code = "from runner_image.places import agent_cli; import os; os.execv(agent_cli(), ['claude', '--version'])"
    told = sandbox.run("python3", "-c", code).stdout
    known = sandbox.run("python3", "-c", "from claude_agent_sdk._cli_version import __cli_version__ as v; print(v)").stdout
    assert told.split()[0] == known.strip()


def test_our_packages_are_found_without_our_environment(sandbox: Container) -> None:
    """Where a platform runs its own server in the container, its executions may start with an empty environment."""
    assert sandbox.run("env", "-i", "/usr/bin/python3", "-c", "import runner_image.direct, runner_image.exchange").returncode == 0


async def test_the_first_process_reaps(run: Run) -> None:
    """What leaves its parent behind becomes a child of the first process, and no zombie."""
    assert await run(ORPHAN) == 1


def test_the_health_check_finds_the_socket(sandbox: Container) -> None:
    assert sandbox.run("sh", HEALTH).returncode == 0


def test_the_health_check_finds_the_port(engine: str, image: str) -> None:
    """As in a platform that sets only the environment; the server has no network here, so it is asked from inside."""
    with container(engine, image, more=("--env", "CLAUDE_CODE_SERVER_UDS=", "--env", "CLAUDE_CODE_SERVER_PORT=8080")) as made:
        assert made.run("sh", HEALTH).returncode == 0


def test_a_port_that_this_user_may_not_have_is_told(engine: str, image: str) -> None:
    """The platform's target port is 80 unless told otherwise, and not every engine opens that to users."""
    closed = ("--network", "none", "--sysctl", "net.ipv4.ip_unprivileged_port_start=1024")
    done = engine_call(engine, "run", "--rm", *closed, image)
    assert done.returncode == 1
    assert "CLAUDE_CODE_SERVER_PORT" in done.stderr


def test_ends_when_told(engine: str, image: str) -> None:
    with container(engine, image) as made:
        engine_call(engine, "stop", "--time", "20", made.name)
        assert engine_call(engine, "inspect", "--format", "{{.State.ExitCode}}", made.name).stdout.strip() == "0"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user takes root")
def test_serves_as_any_user(engine: str, image: str) -> None:
    with container(engine, image, user=54321) as made:
        assert made.ask("/health")["status"] == "ready"
        assert made.run("id", "-u").stdout.strip() == "54321"


def test_the_list_of_contents_names_what_matters(image: str) -> None:
    bill = json.loads((ROOT / ".data/image" / f"{image.replace(':', '_')}.cdx.json").read_text(encoding="utf-8"))
    names = {component["name"] for component in bill["components"]}
    assert {"claude-code", "claude-agent-sdk", "git", "gh", "nodejs", "ripgrep", "tini", "pydantic"} <= names
    assert all(component["version"] for component in bill["components"])
