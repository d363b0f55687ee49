"""The detector of blocking calls sees them, and only them: else the silence of the other tests means nothing."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.blocking_calls import ROOT, BlockingCalls

Call = Callable[[], object]


@pytest.fixture
def ours(blocking_calls: BlockingCalls) -> Callable[[str], Call]:
    """Compiles a coroutine function as if it stood in our source."""

    def build(body: str) -> Call:
        names: dict[str, Call] = {}
        code = f"import asyncio, time, pathlib\nasync def work():\n    {body}\n"
        exec(compile(code, str(ROOT / "runner_image" / "imagined.py"), "exec"), names)
        return names["work"]

    return build


@pytest.mark.parametrize(
    ("body", "event"),
    [
        pytest.param("time.sleep(0)", "time.sleep", id="sleep"),
        pytest.param("pathlib.Path('/dev/null').read_bytes()", "open", id="file"),
        pytest.param("__import__('subprocess').run(['true'])", "subprocess.Popen", id="subprocess"),
    ],
)
def test_a_blocking_call_on_the_loop_is_noticed(ours: Callable[[str], Call], blocking_calls: BlockingCalls, body: str, event: str) -> None:
    asyncio.run(ours(body)())  # type: ignore[arg-type]
    assert [call.split(" ")[2].partition("(")[0] for call in blocking_calls.found] == [event]
    blocking_calls.found.clear()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("await asyncio.to_thread(time.sleep, 0)", id="in a worker thread"),
        pytest.param("await (await asyncio.create_subprocess_exec('true')).wait()", id="asyncio's subprocess"),
        pytest.param("import colorsys", id="a first import"),
    ],
)
def test_what_does_not_block_is_left_alone(ours: Callable[[str], Call], blocking_calls: BlockingCalls, body: str) -> None:
    asyncio.run(ours(body)())  # type: ignore[arg-type]
    assert not blocking_calls.found


def test_what_a_test_does_itself_is_left_alone(blocking_calls: BlockingCalls, tmp_path: Path) -> None:
    async def work() -> None:
        time.sleep(0)  # noqa: ASYNC251
        (tmp_path / "file").touch()

    asyncio.run(work())
    assert not blocking_calls.found
