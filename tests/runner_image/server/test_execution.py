"""What executions may use, what is kept of them, and what they leave behind."""

import json
import time
from pathlib import Path

import anyio
import httpx
import pytest

from context_client.conformance.container import delete, execute
from runner_image.server.settings import ExecutionLimits

from .conftest import Serve

pytestmark = pytest.mark.anyio


async def test_deadline_ends_the_whole_group_and_keeps_the_words(serve: Serve) -> None:
    code = "import subprocess\nprint('begun', flush=True)\nsubprocess.run(['sleep', '60'])"
    async with serve(ExecutionLimits(timeout_seconds=0.5)) as client:
        started = time.monotonic()
        detail = await execute(client, code)
    assert time.monotonic() - started < 60 / 2
    assert detail["output"] == "begun\n"
    assert "0.5 seconds" in detail["error"]


@pytest.mark.parametrize(
    ("limits", "code", "words"),
    [
        pytest.param(ExecutionLimits(address_space_bytes=400 << 20), "x = bytearray(1 << 30)", "MemoryError", id="memory"),
        pytest.param(ExecutionLimits(cpu_seconds=1), "while True: pass", "SIGXCPU", id="cpu"),
        pytest.param(
            ExecutionLimits(file_size_bytes=1000), "with open('f', 'wb') as f: f.write(bytes(2000))", "File too large", id="file size"
        ),
    ],
)
async def test_limit_of_one_execution(serve: Serve, limits: ExecutionLimits, code: str, words: str) -> None:
    async with serve(limits) as client:
        assert words in (await execute(client, code))["error"]
        assert (await execute(client, "print(1)"))["output"] == "1\n"


async def test_a_flood_of_output_is_cut_and_says_so(serve: Serve) -> None:
    async with serve(ExecutionLimits(output_bytes=1000)) as client:
        detail = await execute(client, "import os\nfor _ in range(100): os.write(1, b'x' * 100_000)")
    assert detail["output"].startswith("x" * 1000 + "\n[stdout was cut: 1000 bytes are kept, 9999000 more")
    assert detail["error"] == ""


async def test_a_hundred_sleeps_run_beside_each_other(client: httpx.AsyncClient) -> None:
    """The best of three, since the machine may be busy with other tests."""
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(execute, client, "import time; time.sleep(0.2)")
        seconds.append(time.monotonic() - started)
    assert min(seconds) < 100 * 0.2 / 4  # one after the other they take 20 s; ./dev bench has the figure


async def test_dead_fork_server_is_told_and_replaced(client: httpx.AsyncClient) -> None:
    detail = await execute(client, "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(20)")
    assert "send the code again" in detail["error"]
    assert (await execute(client, "print('back')"))["output"] == "back\n"


async def test_members_of_the_session_outside_the_group_die_with_the_files(client: httpx.AsyncClient) -> None:
    """A shell's background job has a group of its own; `delete` finds it by its session."""
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '60'], process_group=0).pid)"
    pid = int((await execute(client, code))["output"])
    assert _runs(pid)
    await delete(client)
    assert not _runs(pid)


async def test_what_looks_like_a_secret_is_not_in_the_environment(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_HEADER", "x")
    monkeypatch.setenv("MODEL_API_KEY", "x")
    monkeypatch.setenv("PLAIN_WORD", "x")
    async with serve(ExecutionLimits()) as client:
        detail = await execute(
            client, "import os\nseen = [n in os.environ for n in ('IDENTITY_HEADER', 'MODEL_API_KEY', 'PLAIN_WORD')]\nseen"
        )
    assert json.loads(detail["results"]["seen"]) == [False, False, True]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("datetime.date(2026, 1, 2)", '"2026-01-02"', id="date"),
        pytest.param("decimal.Decimal('1.10')", "1.1", id="decimal"),
        pytest.param("uuid.UUID(int=1)", '"00000000-0000-0000-0000-000000000001"', id="uuid"),
        pytest.param("{3, 1}", "[1, 3]", id="set"),
        pytest.param("b'ab'", '"ab"', id="bytes"),
        pytest.param("'\\ud800'", '"\\ud800"', id="half a surrogate pair"),
    ],
)
async def test_result_values(client: httpx.AsyncClient, value: str, text: str) -> None:
    detail = await execute(client, f"import datetime, decimal, uuid\nvalue = {value}")
    assert detail["results"] == {"value": text}


async def test_stderr_of_code_that_works_does_not_look_like_a_failure(client: httpx.AsyncClient) -> None:
    detail = await execute(client, "import sys\nprint('out', end='')\nprint('warning', file=sys.stderr)")
    assert detail == {"results": {}, "output": "out\nwarning\n", "error": ""}


async def test_threads_and_exit_functions_are_waited_for(client: httpx.AsyncClient) -> None:
    code = (
        "import atexit, threading, time\natexit.register(print, 'exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()"
    )
    assert (await execute(client, code))["output"] == "thread\nexit\n"


async def test_output_that_is_no_text_is_shown_with_replacements(client: httpx.AsyncClient) -> None:
    assert (await execute(client, "import os; os.write(1, b'\\xff!')"))["output"] == "\N{REPLACEMENT CHARACTER}!"


async def test_a_file_of_the_session_cannot_take_the_place_of_a_module(client: httpx.AsyncClient, data: Path) -> None:
    await execute(client, "open('colorsys.py', 'w').write('raise SystemExit(9)')\nopen('own.py', 'w').write('x = 5')")
    detail = await execute(client, "import colorsys, own\nx = own.x\nx")
    assert detail["results"] == {"x": "5"}


async def test_vanished_data_root_comes_back(client: httpx.AsyncClient, data: Path) -> None:
    await execute(client, f"import shutil; shutil.rmtree({str(data)!r})")
    detail = await execute(client, "import os; print(os.getcwd())")
    assert detail["output"].strip() == str(data)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in (b"Z", b"X")  # dead, and not or just now collected
