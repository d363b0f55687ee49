"""The requests our client sends and the calls our server makes, against the samples."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_client import ContextClient, EndpointOverride, UserIdentity
from context_client.embedded.blobs import BlobFolder, open_blobs
from context_client.embedded.container import SandboxLine
from context_client.embedded.provider import SandboxEndpoint

SAMPLES = Path(__file__).parent / "samples" / "context_api"
INSTANCE = "11111111-2222-3333-4444-555555555555"
CONVERSATION = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
SESSION = f"code-{CONVERSATION}-code"
OPERATION = "0f9a6c1e-5d1b-4c52-9a0e-7f0f7d1f2a33"

pytestmark = pytest.mark.anyio


def sample(name: str) -> Any:
    return json.loads((SAMPLES / name).read_text())


class Recorder(httpx.AsyncBaseTransport):
    """Answers every request with one sample and keeps it."""

    def __init__(self, answer: str) -> None:
        self.answer = (SAMPLES / answer).read_bytes()
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        answer = httpx.ByteStream(self.answer_to(request))
        return httpx.Response(200, stream=answer, headers={"content-type": "application/json"})

    def answer_to(self, request: httpx.Request) -> bytes:
        return self.answer


@pytest.fixture
def user() -> UserIdentity:
    return UserIdentity.from_header((SAMPLES / "header_x_user_identity.json").read_text())


def client_of(recorder: Recorder) -> ContextClient:
    url = "https://context.example/context"
    return ContextClient(base_url=url, api_key="<key>", instance_id=INSTANCE, transport=recorder)


def assert_posted(recorder: Recorder, path: str, body: str) -> None:
    (request,) = recorder.requests
    assert (request.method, request.url.raw_path.decode()) == ("POST", f"/context/instances/{INSTANCE}/{path}")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-api-key"] == "<key>"
    assert json.loads(request.headers["x-user-identity"]) == sample("header_x_user_identity.json")
    assert json.dumps(json.loads(request.content)) == json.dumps(sample(body))


@pytest.mark.parametrize("with_override", [False, True], ids=["plain", "override"])
async def test_create_code_session(user: UserIdentity, with_override: bool) -> None:
    suffix = "_with_override" if with_override else ""
    body = f"create_code_session.request{suffix}.json"
    override = sample(body)["endpoint_provider_override"]
    recorder = Recorder("create_code_session.response.json")
    async with client_of(recorder) as client:
        session = await client.create_code_session(
            user,
            agent_name="eval-agent",
            conversation_id=CONVERSATION,
            context="Code",
            endpoint_provider="AzureContainerAppsCustomContainer",
            override=EndpointOverride.model_validate(override) if override else None,
        )
    assert session.session_id == SESSION
    assert_posted(recorder, "codeSessions", body)


async def test_upload_to_session(user: UserIdentity) -> None:
    recorder = Recorder("upload_files.response.json")
    async with client_of(recorder) as client:
        upload = await client.upload_to_session(user, SESSION, ["bundle.zip", "notes.txt"])
    assert upload.file_upload_success == {"bundle.zip": True, "notes.txt": False}
    assert_posted(recorder, f"codeSessions/{SESSION}/uploadFiles", "upload_files.request.json")


async def test_execute_code(user: UserIdentity) -> None:
    recorder = Recorder("execute_code.response_ok.json")
    async with client_of(recorder) as client:
        result = await client.execute_code(user, SESSION, "total = 40 + 2\nprint('done')\ntotal\n")
    assert (result.status, result.standard_output) == ("Succeeded", "done\n")
    assert_posted(recorder, f"codeSessions/{SESSION}/executeCode", "execute_code.request.json")


async def test_download_from_session(user: UserIdentity) -> None:
    recorder = Recorder("download_files.response_with_errors.json")
    async with client_of(recorder) as client:
        download = await client.download_from_session(user, SESSION, OPERATION)
    assert download.errors == ("//changes.patch", "//logs.tar.gz", "//run.log")
    assert_posted(recorder, f"codeSessions/{SESSION}/downloadFiles", "download_files.request.json")


async def test_upload_conversation_file(user: UserIdentity) -> None:
    """The form equals the sample but for the boundary, which is anybody's choice."""
    recorder = Recorder("file_record.user_upload.json")
    async with client_of(recorder) as client:
        await client.upload_conversation_file(user, CONVERSATION, "eval-agent", "bundle.zip", b"<raw bytes>", "application/zip")
    (request,) = recorder.requests
    expected = _read_form("multipart.upload_to_conversation.txt")
    assert f"{request.method} {request.url.raw_path.decode().removeprefix('/context')}" == expected["target"]
    assert _with_one_boundary(request) == expected["body"]


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[BlobFolder]:
    async with open_blobs(tmp_path, INSTANCE) as opened:
        yield opened


async def test_a_file_travels_into_the_container_as_in_the_sample(blobs: BlobFolder) -> None:
    recorder = Recorder("container.upload.response.json")
    content = b"<raw bytes, no part Content-Type>"
    async with blobs.spool() as spool, httpx.AsyncClient(transport=recorder) as http:
        await spool.write(content)
        await blobs.store(spool, "file/x", as_text=False)
        assert await _line(http).upload("notes.txt", blobs, "file/x", len(content))
    (request,) = recorder.requests
    expected = _read_form("multipart.upload_to_container.txt")
    assert f"{request.method} {request.url.raw_path.decode()}" == expected["target"]
    assert re.fullmatch(r'multipart/form-data; boundary="[0-9a-f]+"', request.headers["content-type"])
    assert request.headers["content-length"] == str(len(request.content))
    assert _with_one_boundary(request) == expected["body"]


async def test_the_other_container_calls(blobs: BlobFolder) -> None:
    recorder = Recorder("container.execute.response_ok.json")
    async with httpx.AsyncClient(transport=recorder) as http, blobs.spool() as spool:
        line = _line(http)
        assert await line.execute("total = 40 + 2\nprint('done')\ntotal\n") == sample("execute_code.response_ok.json")
        assert await line.download("results.jsonl", spool, 1_000_000)
        assert await line.delete_all()
    execute, download, delete = recorder.requests
    assert json.loads(execute.content) == sample("container.execute.request.json")
    assert json.loads(download.content) == sample("container.download.request.json")
    assert download.headers["content-type"] == "application/json; charset=utf-8"
    assert (delete.content, delete.headers["content-length"]) == (b"", "0")
    assert "content-type" not in delete.headers
    assert delete.url.query == f"api-version=2024-10-02-preview&identifier={SESSION}".encode()


async def test_folders_in_a_listing_are_walked_with_their_path() -> None:
    class Walked(Recorder):
        def answer_to(self, request: httpx.Request) -> bytes:
            inside = "path" in request.url.params
            return (SAMPLES / "container.list.response.json").read_bytes() if inside else self.answer

    walked = Walked("code_interpreter.list.response_shape_read_by_context_api.json")
    async with httpx.AsyncClient(transport=walked) as http:
        found = await _line(http).list_files()
    assert [(entry.parent, entry.name) for entry in found] == [("/", "results.jsonl"), ("/out", "results.jsonl")]
    assert [request.url.params.get("path") for request in walked.requests] == [None, "/out"]


def _line(http: httpx.AsyncClient) -> SandboxLine:
    endpoint = SandboxEndpoint(base_url="http://pool.example/")
    return SandboxLine(http=http, endpoint=endpoint, session_id=SESSION, versioned=True, answer_limit=1_000_000)


def _read_form(name: str) -> dict[str, str]:
    head, _, body = (SAMPLES / name).read_text().partition("\n\n")
    boundary = body.splitlines()[0].removeprefix("--")
    return {"target": head.splitlines()[0].removesuffix(" HTTP/1.1"), "body": body.replace(f"--{boundary}", "--BOUNDARY").strip()}


def _with_one_boundary(request: httpx.Request) -> str:
    body = request.content.decode().replace("\r\n", "\n")
    return body.replace(body.splitlines()[0], "--BOUNDARY").strip()
