"""The client against servers that refuse, vanish, hang and talk nonsense."""

import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from context_client import (
    ContextApiError,
    ContextClient,
    InvalidRequest,
    ProtocolError,
    ServerFault,
    Unauthorized,
    Unavailable,
    UserIdentity,
    WrongInstance,
)
from context_client.judge import judge

pytestmark = pytest.mark.anyio


def client_for(url: str, **more: Any) -> ContextClient:
    return ContextClient(base_url=url, api_key="k", instance_id="i", **more)


def one_answer(answer: Response) -> Starlette:
    async def reply(request: Request) -> Response:
        return answer

    return Starlette(routes=[Route("/{path:path}", reply, methods=["GET", "POST", "DELETE"])])


@pytest.mark.parametrize(
    ("status", "content_type", "body", "kind"),
    [
        (401, "text/plain", b"no key", Unauthorized),
        (401, "application/json", b'"no key"', Unauthorized),
        (403, "text/plain", b"other instance", WrongInstance),
        (500, "", b"", ServerFault),
        (500, "application/problem+json", b'{"title": "An error"}', ServerFault),
        (500, "application/json", b'{"type": "exception", "title": "NullReferenceException", "status": 500}', ServerFault),
        (502, "text/html", b"<html>bad gateway", ProtocolError),
        (302, "", b"", ProtocolError),
        (500, "application/json", b"{" * 100_000, ServerFault),
        (200, "application/json", b'{"type": "exception", "title": "X", "status": "odd"}', ServerFault),
    ],
    ids=range(10),
)
def test_every_dialect_of_failure_is_understood(status: int, content_type: str, body: bytes, kind: type[ContextApiError]) -> None:
    error = judge(status, content_type, body)
    assert type(error) is kind
    assert error.detail is None or len(error.detail) < 5000


def test_success_is_no_error() -> None:
    assert judge(200, "", b"") is None
    assert judge(200, "application/json", b'{"type": "file-record", "title": "x"}') is None


@pytest.mark.parametrize("path", ["", "/", "/context", "/context/"])
async def test_a_base_url_may_have_a_path(
    path: str, user: UserIdentity, serve_app: Callable[[object], AbstractAsyncContextManager[str]]
) -> None:
    seen: list[tuple[str, str]] = []

    async def reply(request: Request) -> Response:
        seen.append((request.url.path, request.headers["x-key"]))
        return JSONResponse({"id": "f", "file_name": "n"})

    app = Starlette(routes=[Route("/{path:path}", reply)])
    async with serve_app(app) as url, client_for(url + path, api_key_header="X-KEY", api_key_prefix="Key ") as client:
        await client.file_record(user, "f/../g")
    assert seen == [(f"{path.rstrip('/')}/instances/i/fileRecords/f/../g", "Key k")]


async def test_nobody_listens(user: UserIdentity) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with client_for(f"http://127.0.0.1:{closed.getsockname()[1]}") as client:
            with pytest.raises(Unavailable, match="no answer") as caught:
                await client.execute_code(user, "s", "1")
    assert not caught.value.may_have_arrived
    assert isinstance(caught.value.cause, httpx.ConnectError)


async def test_a_server_that_hangs_is_left(user: UserIdentity, serve_app: Callable[[object], AbstractAsyncContextManager[str]]) -> None:
    async def hang(request: Request) -> Response:
        await anyio.sleep(1)
        return Response()

    app = Starlette(routes=[Route("/{path:path}", hang, methods=["POST"])])
    async with serve_app(app) as url, client_for(url) as client:
        with pytest.raises(Unavailable) as caught:
            await client.execute_code(user, "s", "1", timeout_seconds=0.1)
    assert caught.value.may_have_arrived


class Refusing(httpx.AsyncBaseTransport):
    """Refuses some connections before it answers."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        if self.calls <= self.times:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, json={"id": "f", "file_name": "n", "operation_id": "o", "status": "Succeeded"})


async def test_a_get_that_cannot_connect_is_tried_again(user: UserIdentity) -> None:
    transport = Refusing(2)
    async with client_for("http://x", transport=transport) as client:
        assert (await client.file_record(user, "f")).file_name == "n"
    assert transport.calls == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda client, user: client.upload_to_session(user, "s", []),
        lambda client, user: client.execute_code(user, "s", "1"),
        lambda client, user: client.download_from_session(user, "s", "o"),
        lambda client, user: client.delete_file_record(user, "f"),
        lambda client, user: client.upload_agent_file(user, "a", "n", b"1"),
    ],
    ids=["upload", "execute", "download", "delete", "agent-file"],
)
async def test_what_changes_something_is_never_tried_again(
    call: Callable[[ContextClient, UserIdentity], Awaitable[object]], user: UserIdentity
) -> None:
    transport = Refusing(1)
    async with client_for("http://x", transport=transport) as client:
        with pytest.raises(Unavailable):
            await call(client, user)
    assert transport.calls == 1


@pytest.mark.parametrize(
    "answer",
    [Response("<html>", media_type="text/html"), JSONResponse([]), JSONResponse({}), JSONResponse({"id": 7, "file_name": "n"})],
    ids=["page", "list", "empty", "wrong-type"],
)
async def test_an_answer_that_is_not_the_context_api_says_so(answer: Response, user: UserIdentity) -> None:
    async with client_for("http://x", transport=httpx.ASGITransport(one_answer(answer))) as client:
        with pytest.raises(ProtocolError, match="FileRecord"):
            await client.file_record(user, "f")


async def test_unknown_fields_and_nulls_are_borne(user: UserIdentity) -> None:
    body = {"id": "f", "file_name": "n", "metadata": None, "content_type": None, "deleted": None, "color": "red"}
    async with client_for("http://x", transport=httpx.ASGITransport(one_answer(JSONResponse(body)))) as client:
        record = await client.file_record(user, "f")
    assert (record.metadata, record.content_type, record.deleted) == ({}, "", False)


async def test_a_file_that_looks_like_an_error_is_a_file(user: UserIdentity) -> None:
    body = {"type": "exception", "title": "Exception", "status": 500}
    async with client_for("http://x", transport=httpx.ASGITransport(one_answer(JSONResponse(body)))) as client:
        assert json.loads((await client.file_content(user, "f")).content) == body


@pytest.mark.parametrize("context", ["", "a b", "a_b", "a/b", "ä", "x" * 100], ids=["empty", "blank", "_", "/", "ä", "long"])
async def test_a_context_that_would_not_survive_is_refused_before_sending(context: str, user: UserIdentity) -> None:
    async with client_for("http://x", transport=Refusing(9)) as client:
        with pytest.raises(InvalidRequest):
            await client.create_code_session(user, agent_name="a", conversation_id="c" * 36, context=context, endpoint_provider="p")


@pytest.mark.parametrize("file_id", ["", ".", "..", "\ud800"], ids=["empty", "dot", "dots", "half"])
async def test_ids_that_would_change_the_address_are_refused(file_id: str, user: UserIdentity) -> None:
    async with client_for("http://x", transport=Refusing(0)) as client:
        with pytest.raises(InvalidRequest):
            await client.file_content(user, file_id)


async def test_code_that_is_not_text_is_refused(user: UserIdentity) -> None:
    async with client_for("http://x", transport=Refusing(0)) as client:
        with pytest.raises(InvalidRequest):
            await client.execute_code(user, "s", "print('\ud800')")
