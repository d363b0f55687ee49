"""What every wall keeps: the same questions, asked as the agent's CLI and as a shell command of it."""

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from runner_image.places import Places
from runner_image.runner import serve_runner
from runner_image.walls import Wall
from tests.runner_image.walls.conftest import Stand
from workflow_schemas.mailbox import Exchange, encode
from workflow_schemas.walls import EVERY_WALL

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
LEVELS = ("cli", "command")
MODEL_REQUEST = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


def questions(wall: Wall, places: Places, secret: str, cli_secret: str, address: Any) -> str:
    exchange = encode(Exchange(run_id="run-12345678")).encode()
    frame = (len(exchange).to_bytes(4, "big") + exchange).hex()
    models = [(str(path), MODEL_REQUEST.hex()) for path in (places.model_socket, wall.view.model_socket)]
    kept = ["/", "/etc", "/usr/bin", "/run", "/dev", "/opt", str(places.state), str(places.data), str(HERE)]
    ours = [wall.view.workspace, wall.view.outputs, wall.view.config, wall.view.home, wall.view.temporary]
    return json.dumps(
        {
            "needles": [secret[::-1], cli_secret[::-1]],
            "secret_files": [str(places.state / "secret"), str(places.data / "secret")],
            "secret_folders": [str(places.state), str(places.data)],
            "places": [*kept, *ours],
            "workspace": wall.view.workspace,
            "processes": [],
            "sockets": [(str(places.socket), frame), *models, ("@" + secret[:8], "00")],
            "address": address,
        }
    )


@pytest.fixture(scope="module")
async def found(stand: Stand, secret: str, anyio_backend: str) -> dict[str, Any]:
    """What the probe finds on both levels, while a runner serves outside, and listens on everything that could be reached."""
    wall, places = stand.wall, stand.places
    cli_secret = secrets.token_hex(16)
    for folder in (places.state, places.data):
        (folder / "secret").write_text(secret)
    for name in ("agent.py", "probe.py"):
        shutil.copy(HERE / name, places.workspace)
    with ExitStack() as stack:
        stream = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(stream.getsockname())
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("\0" + secret[:8])
        abstract.listen()
        async with serve_runner(places):
            places.model_socket.chmod(0o777)
            question = questions(wall, places, secret, cli_secret, stream.getsockname())
            agent = await stand.start("python3", f"{wall.view.workspace}/agent.py", wall.view.shell, question, ANTHROPIC_API_KEY=cli_secret)
            said, complained = await agent.communicate()
        datagrams.setblocking(False)
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)
    assert agent.returncode == 0, complained
    return json.loads(said)  # type: ignore[no-any-return]


async def test_the_probe_finds_what_no_wall_hides(secret: str, tmp_path: Path, short_directory: Path) -> None:
    """Else what it does not find behind one would say nothing."""
    shell, kept, name = tmp_path / "shell", tmp_path / "secret", str(short_directory / "s")
    shell.write_text('#!/bin/sh\nexec /bin/bash -c "$1"\n')
    shell.chmod(0o755)
    kept.write_text(secret)
    question: dict[str, Any] = {"needles": [secret[::-1]], "secret_files": [str(kept)], "secret_folders": [str(tmp_path)]}
    question |= {"places": [str(tmp_path)], "workspace": str(tmp_path), "sockets": [(name, "00")], "processes": [os.getpid()]}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as stream:
        question["address"] = stream.getsockname()
        async with await asyncio.start_unix_server(answer, name):
            line = ["python3", str(HERE / "agent.py"), str(shell), json.dumps(question)]
            process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
            found = json.loads((await process.communicate())[0])["cli"]
    lacking = {"opened_descriptors", "own_namespaces"}  # as pytest runs, it may have no pipe; and containers forbid namespaces
    assert [question for question, answer in found.items() if not answer and question not in lacking] == []


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("question", ["read_files", "listed_folders", "changed_files", "reached_addresses"])
async def test_nothing_outside_is_read_changed_or_reached(found: dict[str, Any], level: str, question: str) -> None:
    assert found[level][question] == []


async def test_a_command_can_make_no_namespace(found: dict[str, Any]) -> None:
    """In a user namespace of its own it could mount."""
    assert found["command"]["own_namespaces"] is False


async def test_only_the_agents_own_places_are_writable(found: dict[str, Any], stand: Stand) -> None:
    view = stand.wall.view
    ours = {view.workspace, view.outputs, view.home, view.temporary}
    assert set(found["cli"]["written_places"]) == {*ours, view.config}
    assert set(found["command"]["written_places"]) == ours, "the transcript is not for commands"


async def test_no_memory_and_no_environment_outside_can_be_read(found: dict[str, Any]) -> None:
    """The CLI's own processes may know the CLI's word; a command knows neither."""
    assert 0 not in found["cli"]["found_needles"]
    assert found["command"]["found_needles"] == []


async def test_no_descriptor_of_the_cli_or_the_runner_can_be_had(found: dict[str, Any]) -> None:
    assert not [line for line in found["command"]["opened_descriptors"] if "agent.py" in line or "pytest" in line]
    assert not [line for line in found["cli"]["opened_descriptors"] if "pytest" in line]


async def test_neither_the_cli_nor_the_runner_nor_the_wall_can_be_signalled(found: dict[str, Any]) -> None:
    assert not [line for line in found["command"]["signalled"] if any(word in line for word in ("agent.py", "pytest", "launcher.py"))]
    assert not [line for line in found["cli"]["signalled"] if "pytest" in line]


async def test_only_the_cli_is_answered_by_the_model_socket(found: dict[str, Any], stand: Stand) -> None:
    assert set(found["cli"]["answering_sockets"]) == {stand.wall.view.model_socket}
    assert found["command"]["answering_sockets"] == []


async def test_a_command_is_told_no_address_and_no_key(found: dict[str, Any]) -> None:
    assert [name for name in found["command"]["variables"] if any(word in name for word in ("KEY", "TOKEN", "SOCKET", "URL"))] == []
    assert "RUNNER_SECRET" not in found["cli"]["variables"]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param("(setsid nohup sleep {mark} > /dev/null 2>&1 &); sleep {mark} & disown -a", id="daemons"),
        pytest.param("(while :; do (sleep {mark} & ) ; done) & sleep 0.3", id="fork storm"),
        pytest.param("trap '' TERM HUP INT; sleep {mark} & sleep 0.1; kill -STOP $!", id="stopped"),
    ],
)
async def test_what_a_command_started_ends_with_it(stand: Stand, start: str) -> None:
    """The agent goes on, and none of it is left."""
    mark = f"7{time.time_ns() % 10**8}.5"
    agent = await stand.start("/bin/sh", "-c", '"$0" "$1"; echo on; read word', stand.wall.view.shell, start.format(mark=mark))
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"on\n"
    await until(lambda: not processes_with(mark))
    await agent.communicate(b"\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to end"])
async def test_everything_ends_when_the_front_does(stand: Stand, number: signal.Signals) -> None:
    """The SDK knows only the process that it started."""
    mark = f"8{time.time_ns() % 10**8}.5"
    script = f'"$0" "(setsid sleep {mark} &) ; sleep {mark}" & setsid sleep {mark} & echo ready; wait'
    agent = await stand.start("/bin/sh", "-c", script, stand.wall.view.shell)
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"ready\n"
    await until(lambda: len(processes_with(mark)) >= 3)
    os.kill(agent.pid, number)
    await agent.communicate()
    await until(lambda: not processes_with(mark))


async def test_a_command_may_do_what_commands_do(stand: Stand) -> None:
    """Pipes, descriptors by name, named semaphores, Unix sockets of its own, sub-shells, exit status."""
    python = "import multiprocessing as m; print(m.get_context('spawn').Queue, m.Manager)"
    tries = [
        "cat <(echo one) > /dev/null; (echo two > /dev/stdout) | cat; nproc > /dev/null",
        "python3 -c 'import multiprocessing as m; m.Semaphore(); m.Manager().dict()'",
        f'python3 -c "{python}" > $TMPDIR/out',
        "mv $TMPDIR/out out; ln -s out link; ln out hard; mkdir -p a/b; mv out a/b; rm -r a link hard",
        "git init -q repo; cd repo; echo x > f; git add f; git commit -q -m x; git log --oneline | wc -l; cd ..; rm -r repo",
        "(exit 7); echo $?; yes | head -n 1; exit 9",
    ]
    script = 'for try in "$@"; do "$0" "$try" || echo "status $?"; done'
    environment = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    agent = await stand.start("/bin/bash", "-c", script, stand.wall.view.shell, *tries, **environment)
    said, complained = await agent.communicate()
    assert (said.decode().split(), complained.decode()) == (["two", "1", "7", "y", "status", "9"], "")


async def test_the_wall_tells_what_it_is(stand: Stand) -> None:
    facts = stand.wall.describe()
    assert (facts.level, facts.kind) in (("namespaces", "bubblewrap"), ("landlock", "Landlock"))
    assert set(EVERY_WALL) <= set(facts.guards)
    assert facts.words.startswith(facts.kind)


def processes_with(word: str) -> list[str]:
    """Command lines of living processes that have this word as an argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words[1:] and b"sleep" in words[0]:
            found.append(b" ".join(words).decode())
    return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)
