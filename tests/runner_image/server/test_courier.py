"""The shortcut for exchanges does what the program does, for exactly that program."""

import asyncio
from pathlib import Path

import pytest

from orchestration_service.sessions import bootstrap
from runner_image.server.courier import Courier
from workflow_schemas.mailbox import Exchange, Message, encode

_FRAMES = [
    pytest.param(encode(Exchange(run_id="r")), id="small"),
    pytest.param(encode(Exchange(run_id="r", messages=(Message(seq=1, kind="say", data=bytes(range(256)) * 3000),))), id="large"),
]


async def _echo(path: Path) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(len(data).to_bytes(4, "big") + data)
        await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(connected, str(path / "runner.sock"))


@pytest.mark.anyio
@pytest.mark.parametrize("frame", _FRAMES)
async def test_the_services_program_is_carried(frame: str, short_directory: Path) -> None:
    """The frame reaches the runner's socket whole, and its answer comes back as the program would print it."""
    async with await _echo(short_directory):
        assert await Courier(short_directory, 5).carry(bootstrap(frame)) == frame + "\n"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("print(1)\n", id="other-code"),
        pytest.param(bootstrap("FLLM1A:abc") + "print(1)\n", id="more-code-behind"),
        pytest.param("import os\n" + bootstrap("FLLM1A:abc"), id="more-code-before"),
        pytest.param(bootstrap("FLLM1A:a'b"), id="a-quote-inside"),
        pytest.param(bootstrap("FLLM1A:a\\nb"), id="an-escape-inside"),
        pytest.param(bootstrap("hello"), id="no-frame"),
    ],
)
async def test_anything_else_is_left_to_be_executed(code: str, short_directory: Path) -> None:
    """Only the program itself is recognised."""
    async with await _echo(short_directory):
        assert await Courier(short_directory, 5).carry(code) is None


@pytest.mark.anyio
async def test_without_a_runner_the_program_is_executed(short_directory: Path) -> None:
    """The program starts a runner; the shortcut does not."""
    assert await Courier(short_directory, 5).carry(bootstrap("FLLM1A:abc")) is None


@pytest.mark.anyio
async def test_a_silent_runner_does_not_hold_the_shortcut_for_ever(short_directory: Path) -> None:
    """After the time limit the ordinary way is taken."""
    gate = asyncio.Event()

    async def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.close()

    async with await asyncio.start_unix_server(connected, str(short_directory / "runner.sock")):
        assert await Courier(short_directory, 0.1).carry(bootstrap("FLLM1A:abc")) is None
        gate.set()
