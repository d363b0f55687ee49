"""Code sessions with sandboxes that misbehave, and providers that fail."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from context_client import (
    ContextApiError,
    ContextClient,
    EmbeddedContext,
    EndpointOverride,
    InvalidRequest,
    RemoteContext,
    ServerFault,
    UserIdentity,
    connect,
)
from context_client.conformance.context_api import Ground
from context_client.embedded.overrides import override_host_problem
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxEndpoint, SandboxProvider
from context_client.embedded.settings import EmbeddedSettings
from context_client.size import SandboxSize

pytestmark = pytest.mark.anyio

Answer = Callable[[httpx.Request], httpx.Response]


def streamed(content: bytes, status: int = 200) -> httpx.Response:
    return httpx.Response(status, stream=httpx.ByteStream(content))


class Scripted:
    """A sandbox whose answers a test writes."""

    def __init__(self, answer: Answer) -> None:
        self.found = SandboxEndpoint(base_url="http://s", transport=httpx.MockTransport(answer), timeout_seconds=2)

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        return self.found


class Broken:
    """A provider without sandboxes."""

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        raise OSError("no room for another sandbox")


@asynccontextmanager
async def grounded(
    settings: EmbeddedSettings, provider: SandboxProvider, ground_for: Callable[[ContextClient], Ground]
) -> AsyncIterator[Ground]:
    embedded = EmbeddedContext(server=settings)
    async with connect(embedded, providers={DEFAULT_PROVIDER_NAME: provider}) as client:
        yield ground_for(client)


GroundFor = Callable[[ContextClient], Ground]


async def test_a_provider_that_fails_is_a_failed_execution(settings: EmbeddedSettings, ground_for: GroundFor) -> None:
    async with grounded(settings, Broken(), ground_for) as ground:
        session = await ground.open_session()
        result = await ground.client.execute_code(ground.user, session.session_id, "1")
        assert (result.status, "no room" in result.error_output) == ("Failed", True)
        with pytest.raises(ServerFault, match="no room"):
            await ground.client.upload_to_session(ground.user, session.session_id, [])


@pytest.mark.parametrize(
    "answer",
    [
        streamed(b"", 200),
        streamed(b"{}", 500),
        streamed(b"no json"),
        streamed(b"[]"),
        streamed(b'{"detail": null}'),
        streamed(b'{"detail": {"output": "", "error": ""}}'),
        streamed(b"[" * 200_000),
        streamed(b"x" * 3_000_000),
    ],
    ids=["empty", "500", "not-json", "list", "null", "no-results", "deep", "long"],
)
async def test_an_odd_execution_answer_is_a_failed_execution(
    answer: httpx.Response, settings: EmbeddedSettings, ground_for: GroundFor
) -> None:
    small = settings.model_copy(update={"answer_limit_bytes": 1_000_000})
    async with grounded(small, Scripted(lambda request: answer), ground_for) as ground:
        session = await ground.open_session()
        result = await ground.client.execute_code(ground.user, session.session_id, "1")
    assert result.status == "Failed"
    assert result.error_output


async def test_half_characters_from_a_sandbox_do_no_harm(settings: EmbeddedSettings, ground_for: GroundFor) -> None:
    item = {"name": "a\ud800.txt", "type": "file", "contentType": "", "sizeInBytes": 1, "lastModifiedAt": ""}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/files":
            return streamed(json.dumps({"value": [item]}).encode())
        return streamed(b'{"detail": {"output": "\\ud800", "error": null, "results": true}}')

    async with grounded(settings, Scripted(answer), ground_for) as ground:
        session = await ground.open_session()
        result = await ground.client.execute_code(ground.user, session.session_id, "1")
        assert (result.standard_output, result.error_output, result.execution_result) == ("?", "", "True")
        upload = await ground.client.upload_to_session(ground.user, session.session_id, [])
        download = await ground.collect(session, upload.operation_id)
    assert [record.file_name for record in download.file_records.values()] == ["a?.txt"]


@pytest.mark.parametrize(
    ("listing", "fails"),
    [
        (streamed(b"", 500), False),
        (streamed(b'{"value": [{"name": "a"}]}'), True),
        (streamed(b"no"), True),
        (
            streamed(
                json.dumps(
                    {"value": [dict.fromkeys(["name", "type", "contentType", "lastModifiedAt"], "directory") | {"sizeInBytes": 0}]}
                ).encode()
            ),
            True,
        ),
    ],
    ids=["500-is-empty", "missing", "not-json", "endless-folders"],
)
async def test_odd_listings(listing: httpx.Response, fails: bool, settings: EmbeddedSettings, ground_for: GroundFor) -> None:
    content = b"".join(listing.stream)  # type: ignore[arg-type]

    def answer(request: httpx.Request) -> httpx.Response:
        return streamed(content, listing.status_code)

    async with grounded(settings, Scripted(answer), ground_for) as ground:
        session = await ground.open_session()
        upload = await ground.client.upload_to_session(ground.user, session.session_id, [])
        if fails:
            with pytest.raises(ServerFault, match="JsonException"):
                await ground.collect(session, upload.operation_id)
        else:
            assert (await ground.collect(session, upload.operation_id)).file_records == {}


async def test_refused_and_vanished_files_are_told(settings: EmbeddedSettings, ground_for: GroundFor) -> None:
    names = ["a.txt", "gone.txt", "b.patch"]
    items = [{"name": name, "type": "file", "contentType": "", "sizeInBytes": 1, "lastModifiedAt": ""} for name in names]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/files":
            return streamed(json.dumps({"value": items}).encode())
        gone = b"gone" in request.content
        return streamed(b"text", 500 if gone else 200)

    async with grounded(settings, Scripted(answer), ground_for) as ground:
        session = await ground.open_session()
        upload = await ground.client.upload_to_session(ground.user, session.session_id, [])
        download = await ground.collect(session, upload.operation_id)
    assert [record.file_name for record in download.file_records.values()] == ["a.txt"]
    assert download.errors == ("//gone.txt", "//b.patch")


async def test_a_sandbox_that_hangs_ends_in_time(settings: EmbeddedSettings, ground_for: GroundFor) -> None:
    async def hang(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(30)
        return streamed(b"")

    provider = Scripted(lambda request: streamed(b""))
    provider.found = SandboxEndpoint(base_url="http://s", transport=httpx.MockTransport(hang), timeout_seconds=0.1)
    async with grounded(settings, provider, ground_for) as ground:
        session = await ground.open_session()
        result = await ground.client.execute_code(ground.user, session.session_id, "1")
    assert (result.status, "0.1 seconds" in result.error_output) == ("Failed", True)


async def test_calls_carry_what_the_provider_asks_and_one_line_is_kept(
    settings: EmbeddedSettings,
    ground_for: GroundFor,
    serve_app: Callable[[object], AbstractAsyncContextManager[str]],
) -> None:
    seen: list[tuple[Any, str, str]] = []

    async def sandbox(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        seen.append((scope["client"], scope["query_string"].decode(), headers[b"authorization"].decode()))
        body = b'{"detail": {"output": "", "error": "", "results": {}}}'
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    async with serve_app(sandbox) as url:
        provider = Scripted(lambda request: streamed(b""))
        provider.found = SandboxEndpoint(base_url=f"{url}/", headers={"Authorization": "Bearer t"}, params={"pool": "a"})
        async with grounded(settings, provider, ground_for) as ground:
            session = await ground.open_session()
            for _ in range(3):
                await ground.client.execute_code(ground.user, session.session_id, "1")
    assert len(set(seen)) == 1, "each call used the same connection and the same parameters"
    _, query, token = seen[0]
    assert query == f"api-version=2024-10-02-preview&identifier={session.session_id}&pool=a"
    assert token == "Bearer t"


async def test_a_replaced_sandbox_gets_the_next_call(settings: EmbeddedSettings, ground_for: GroundFor) -> None:
    def saying(word: str) -> Answer:
        return lambda request: streamed(json.dumps({"detail": {"output": word, "error": "", "results": {}}}).encode())

    provider = Scripted(saying("first"))
    async with grounded(settings, provider, ground_for) as ground:
        session = await ground.open_session()
        assert await ground.run(session, "1") == "first"
        provider.found = Scripted(saying("second")).found
        assert await ground.run(session, "1") == "second"


@pytest.mark.parametrize(
    ("endpoint", "hosts", "fine"),
    [
        ("http://127.0.0.1:8000", "loopback", True),
        ("http://[::1]:8000", "loopback", True),
        ("http://localhost", "loopback", True),
        ("http://169.254.169.254/metadata", "loopback", False),
        ("http://127.0.0.1@evil.example", "loopback", False),
        ("http://127.0.0.1.evil.example", "loopback", False),
        ("http://localhost\\@evil.example", "loopback", False),
        ("http://evil.example", "any", True),
        ("http://127.0.0.1", "none", False),
        ("file:///etc/passwd", "any", False),
        ("//x", "any", False),
        ("", "any", False),
    ],
    ids=range(12),
)
def test_overrides_reach_loopback_only_unless_told(endpoint: str, hosts: str, fine: bool) -> None:
    assert (override_host_problem(endpoint, hosts) is None) == fine


async def test_an_override_is_called_without_version_or_token(
    ground: Ground,
    tmp_path: Path,
    container_on: Callable[[Path], Starlette],
    serve_app: Callable[[object], AbstractAsyncContextManager[str]],
) -> None:
    (tmp_path / "own").mkdir()
    inner = container_on(tmp_path / "own")
    queries: list[str] = []

    async def container(scope: Any, receive: Any, send: Any) -> None:
        queries.append(scope["query_string"].decode())
        await inner(scope, receive, send)

    async with serve_app(container) as url:
        override = EndpointOverride(upn=ground.user.upn.lower(), endpoint=url, enabled=True)
        session = await ground.client.create_code_session(
            ground.user,
            agent_name="a",
            conversation_id=ground.conversation_id,
            context="x",
            endpoint_provider="anything",
            override=override,
        )
        assert "here" in await ground.run(session, "print('here')")
    assert queries == [f"identifier={session.session_id}"]


@pytest.mark.parametrize(
    "override",
    [
        EndpointOverride(upn="eve@contoso.example", endpoint="http://127.0.0.1", enabled=True),
        EndpointOverride(upn="Dana.Scott@contoso.example", endpoint="http://127.0.0.1", enabled=False),
        EndpointOverride(upn="Dana.Scott@contoso.example", endpoint="http://10.0.0.1", enabled=True),
    ],
    ids=["another-user", "disabled", "another-host"],
)
async def test_overrides_that_are_not_ones_own_are_refused(override: EndpointOverride, ground: Ground) -> None:
    with pytest.raises(InvalidRequest, match="endpoint_provider_override"):
        await ground.client.create_code_session(
            ground.user, agent_name="a", conversation_id="c", context="x", endpoint_provider="p", override=override
        )


async def test_every_broken_rule_has_its_line(ground: Ground) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await ground.client.create_code_session(
            ground.user, agent_name="", conversation_id="", context="x", endpoint_provider="", language="python"
        )
    assert (caught.value.detail or "").count("\n") == 3


async def test_an_unknown_provider_is_named(ground: Ground) -> None:
    with pytest.raises(ContextApiError, match="'LocalCustomContainer' is not registered"):
        await ground.client.create_code_session(
            ground.user, agent_name="a", conversation_id="c", context="x", endpoint_provider="LocalCustomContainer"
        )


async def test_uploads_of_one_session_wait_for_each_other(settings: EmbeddedSettings, ground_for: GroundFor) -> None:
    inside = 0
    most = 0

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.sleep(0.02)
        inside -= 1
        return streamed(b"{}")

    provider = Scripted(lambda request: streamed(b""))
    provider.found = SandboxEndpoint(base_url="http://s", transport=httpx.MockTransport(slow))
    async with grounded(settings, provider, ground_for) as ground, anyio.create_task_group() as group:
        session = await ground.open_session()
        for _ in range(5):
            group.start_soon(ground.client.upload_to_session, ground.user, session.session_id, [])
    assert most == 1


async def test_an_embedded_context_is_reached_with_its_own_key_header(settings: EmbeddedSettings, user: UserIdentity) -> None:
    own = settings.model_copy(update={"api_key_header": "X-Own-Key"})
    async with connect(EmbeddedContext(server=own)) as client:
        assert (await client.upload_agent_file(user, "a", "a.txt", b"1")).agent_name == "a"


async def test_a_remote_context_is_reached_by_address(
    app: object,
    settings: EmbeddedSettings,
    user: UserIdentity,
    serve_app: Callable[[object], AbstractAsyncContextManager[str]],
) -> None:
    async with serve_app(app) as url:
        remote = RemoteContext.model_validate({"url": url, "api_key": "a-key-for-tests", "instance_id": settings.instance_id})
        assert "a-key" not in repr(remote)
        async with connect(remote) as client:
            assert (await client.status()).instance_id == settings.instance_id
