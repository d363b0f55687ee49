"""How large a sandbox shall be, from the client to the provider and back, and what is refused."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from pydantic import SecretStr

from context_client import ContextClient, EmbeddedContext, InvalidRequest, RemoteContext, SandboxSize, UserIdentity, connect
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxEndpoint
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes.containers import ContainerLimits
from context_client.sandboxes.limits import SandboxLimits
from context_client.size import MEBIBYTE, SIZE_HEADER, USUAL_SIZE

pytestmark = pytest.mark.anyio

SMALL = SandboxSize(cpus=0.25, memory_bytes=512 * MEBIBYTE)


class Sized:
    """A provider that makes what it is asked for, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[SandboxSize | None] = []
        self._found: SandboxEndpoint | None = None

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        self.asked.append(size)
        if self._found is None:
            transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=httpx.ByteStream(b"{}")))
            self._found = SandboxEndpoint(base_url="http://s", transport=transport, size=(size or SandboxSize()).within(USUAL_SIZE))
        return self._found


async def opened(client: ContextClient, user: UserIdentity, size: SandboxSize | None) -> SandboxSize | None:
    """Open a session, use it, and tell what the server says about its size."""
    session = await client.create_code_session(
        user, agent_name="a", conversation_id="c", context="x", endpoint_provider=DEFAULT_PROVIDER_NAME, size=size
    )
    await client.execute_code(user, session.session_id, "1")
    return (await client.upload_to_session(user, session.session_id, [])).size


async def test_a_size_reaches_the_provider_and_what_there_is_comes_back(settings: EmbeddedSettings, user: UserIdentity) -> None:
    provider = Sized()
    async with connect(EmbeddedContext(server=settings), providers={DEFAULT_PROVIDER_NAME: provider}) as client:
        assert await opened(client, user, SMALL) == SMALL.within(USUAL_SIZE)
        assert provider.asked == [SMALL, SMALL]
        assert await opened(client, user, None) == SMALL.within(USUAL_SIZE), "the sandbox lives, and keeps what it has"
        assert provider.asked[2:] == [None, None]


async def test_a_size_outlives_the_server(settings: EmbeddedSettings, user: UserIdentity) -> None:
    async with connect(EmbeddedContext(server=settings), providers={DEFAULT_PROVIDER_NAME: Sized()}) as client:
        session = await client.create_code_session(
            user, agent_name="a", conversation_id="c", context="x", endpoint_provider=DEFAULT_PROVIDER_NAME, size=SMALL
        )
    provider = Sized()
    async with connect(EmbeddedContext(server=settings), providers={DEFAULT_PROVIDER_NAME: provider}) as client:
        await client.execute_code(user, session.session_id, "1")
    assert provider.asked == [SMALL]
    stricter = settings.model_copy(update={"largest_sandbox": SandboxSize(cpus=0.1)})
    async with connect(EmbeddedContext(server=stricter), providers={DEFAULT_PROVIDER_NAME: provider}) as client:
        with pytest.raises(InvalidRequest, match=r"0\.25 CPU \(at most 0\.1 CPU\)"):
            await client.upload_to_session(user, session.session_id, [])


async def test_a_server_or_provider_that_knows_no_sizes_says_none(client: ContextClient, user: UserIdentity) -> None:
    assert await opened(client, user, SMALL) is None


@pytest.mark.parametrize(
    "size", [{"cpus": 64}, {"memory_bytes": 4096 * MEBIBYTE}, {"processes": 513}, {"disk_bytes": 2561 * MEBIBYTE}], ids=str
)
async def test_more_than_there_may_be_is_refused_with_both_numbers(
    client: ContextClient, user: UserIdentity, size: dict[str, float]
) -> None:
    with pytest.raises(InvalidRequest, match=r"larger than this installation allows: .*\(at most "):
        await opened(client, user, SandboxSize.model_validate(size))


@pytest.mark.parametrize("header", ["", "small", "[]", '{"cpus":0}', '{"cpus":"much"}', '{"gpus":1}', '{"memory_bytes":1e400}'])
async def test_a_size_that_cannot_be_read_is_refused(http: httpx.AsyncClient, header: str) -> None:
    body = {"agent_name": "a", "conversation_id": "c", "context": "x", "endpoint_provider": DEFAULT_PROVIDER_NAME, "language": "Python"}
    answer = await http.post("/codeSessions", json=body, headers={SIZE_HEADER: header})
    assert (answer.status_code, SIZE_HEADER in answer.json()["detail"]) == (400, True)


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A runtime directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        yield Path(folder)


async def test_a_server_of_its_own_has_its_own_bounds_and_real_sandboxes(tmp_path: Path, runtime: Path, user: UserIdentity) -> None:
    """Over a socket, to a process: what is asked for is what the sandbox has, at most what its command line allows. It leaves nothing."""
    words = [
        "-m",
        "context_client.embedded",
        "--folder",
        str(tmp_path),
        "--instance",
        "i",
        "--largest-sandbox",
        '{"memory_bytes": 4294967296}',
    ]
    environment = {**os.environ, "CONTEXT_API_KEY": "k", "XDG_RUNTIME_DIR": str(runtime)}
    async with await anyio.open_process([sys.executable, *words], env=environment, stderr=None) as process:
        assert process.stdout is not None
        url = (await process.stdout.receive()).decode().strip()
        async with connect(RemoteContext(url=url, api_key=SecretStr("k"), instance_id="i")) as client:
            asked = SandboxSize(memory_bytes=3072 * MEBIBYTE, processes=100, disk_bytes=500 * MEBIBYTE)
            assert await opened(client, user, asked) == asked
            with pytest.raises(InvalidRequest, match=r"16 CPU \(at most 2 CPU\)"):
                await opened(client, user, SandboxSize(cpus=16))
        assert _names(runtime)
        process.terminate()
        assert await process.wait() == 0
    assert not _names(runtime)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_the_usual_size_is_what_the_providers_give() -> None:
    assert ContainerLimits().size == USUAL_SIZE
    assert SandboxLimits().size == USUAL_SIZE.model_copy(update={"cpus": None})


@pytest.mark.parametrize("limits", [SandboxLimits(), ContainerLimits()], ids=["local", "container"])
def test_what_is_not_asked_for_stays_and_places_shrink_together(limits: SandboxLimits | ContainerLimits) -> None:
    asked = SandboxSize(disk_bytes=1024 * MEBIBYTE, processes=64)
    sized = limits.sized(asked)
    assert limits.sized(None) is limits
    assert (sized.processes, sized.memory_bytes, sized.open_files) == (64, limits.memory_bytes, limits.open_files)
    assert sized.places["/mnt/data"] == 256 * MEBIBYTE
    assert sized.size.disk_bytes == 1024 * MEBIBYTE


def test_the_smaller_of_two_sizes_has_the_smaller_of_each_part() -> None:
    assert SandboxSize(cpus=4, processes=8).within(SandboxSize(cpus=1, disk_bytes=5)) == SandboxSize(cpus=1, processes=8, disk_bytes=5)
    assert SMALL.beyond(USUAL_SIZE) == ()
    assert SMALL.in_words() == "0.25 CPU, 512 MiB of memory"
