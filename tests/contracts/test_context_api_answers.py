"""What the embedded server answers and stores has the samples' keys, in the samples' order, and the samples' forms."""

import io
import json
import re
import sqlite3
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxEndpoint
from context_client.embedded.settings import EmbeddedSettings
from context_client.size import SandboxSize

SAMPLES = Path(__file__).parent / "samples" / "context_api"
INSTANCE = "11111111-2222-3333-4444-555555555555"
CONVERSATION = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
SESSION = f"code-{CONVERSATION}-code"

pytestmark = pytest.mark.anyio


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def form(value: Any) -> Any:
    """A value's keys in order and its texts with what differs from run to run taken out."""
    if isinstance(value, dict):
        return [(form(key), form(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [form(item) for item in value]
    if isinstance(value, str):
        text = re.sub(r"file-\d{8}-\d{6}-[A-Za-z0-9-]{22}", "FILE", value)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}\+00:00", "TIME", text)
        return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "GUID", text)
    return value


class Pool:
    """A container that answers with the samples, at the address the samples name."""

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        answers = {
            "/code/execute": "container.execute.response_ok",
            "/files/upload": "container.upload.response",
            "/files": "container.list.response",
            "/files/delete": "container.delete.response",
        }

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/files/download":
                return httpx.Response(200, stream=httpx.ByteStream(b"0123456789abcde\n" * 128))
            content = (SAMPLES / f"{answers[request.url.path]}.json").read_bytes()
            return httpx.Response(200, stream=httpx.ByteStream(content))

        return SandboxEndpoint(base_url="http://pool", transport=httpx.MockTransport(answer))


@pytest.fixture
def settings(tmp_path: Path) -> EmbeddedSettings:
    return EmbeddedSettings.model_validate(
        {
            "folder": tmp_path,
            "instance_id": INSTANCE,
            "api_key": "k",
            "instance_name": "context-api-7c9",
            "session_endpoint": "https://pool.env-id.westeurope.azurecontainerapps.io",
        }
    )


@pytest.fixture
async def http(settings: EmbeddedSettings) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"X-API-KEY": "k", "X-USER-IDENTITY": json.dumps(sample("header_x_user_identity"))}
    async with open_app(settings, providers={DEFAULT_PROVIDER_NAME: Pool()}) as app:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        url = f"http://context/instances/{INSTANCE}/"
        async with httpx.AsyncClient(transport=transport, base_url=url, headers=headers) as client:
            yield client


def stored(settings: EmbeddedSettings, kind: str) -> Any:
    with sqlite3.connect(settings.folder / "records.sqlite3") as database:
        return json.loads(database.execute("SELECT body FROM documents WHERE type = ?", (kind,)).fetchone()[0])


async def put(http: httpx.AsyncClient, path: str, name: str, content: bytes) -> httpx.Response:
    return await http.post(path, files={"file": (name, content)})


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a", bytes(51_234))
    return buffer.getvalue()[:51_234]


async def test_status(http: httpx.AsyncClient) -> None:
    assert (await http.get("status")).json() == sample("status.response")


async def test_a_user_upload(http: httpx.AsyncClient) -> None:
    answer = await put(http, f"conversations/{CONVERSATION}/files?agentName=eval-agent", "bundle.zip", archive())
    assert form(answer.json()) == form(sample("file_record.user_upload"))


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        (f"conversations/{CONVERSATION}/files?agentName=eval-agent", "spec.pdf", "file_record.user_upload_pdf"),
        ("agents/eval-agent/files", "handbook.pdf", "file_record.agent_file"),
    ],
    ids=["conversation", "agent"],
)
async def test_a_document(http: httpx.AsyncClient, path: str, name: str, expected: str) -> None:
    answer = await put(http, path, name, b"%PDF-1.7".ljust(90_210, b"\n"))
    assert form(answer.json()) == form(sample(expected))


async def test_a_session_from_start_to_end(http: httpx.AsyncClient, settings: EmbeddedSettings) -> None:
    """Answers and stored documents, one after the other as a turn makes them."""
    created = await http.post("codeSessions", json=sample("create_code_session.request"))
    assert created.json() == sample("create_code_session.response")
    assert stored(settings, "code-session-record").keys() == sample("cosmos.code_session_record").keys()
    assert form(stored(settings, "code-session-record")) == form(sample("cosmos.code_session_record"))

    await put(http, f"conversations/{CONVERSATION}/files?agentName=eval-agent", "bundle.zip", archive())
    uploaded = await http.post(f"codeSessions/{SESSION}/uploadFiles", json=sample("upload_files.request"))
    assert form(uploaded.json()) == form(sample("upload_files.response"))
    assert form(stored(settings, "code-session-file-upload-record")) == form(sample("cosmos.code_session_file_upload_record"))

    executed = await http.post(f"codeSessions/{SESSION}/executeCode", json=sample("execute_code.request"))
    assert executed.json() == sample("execute_code.response_ok")

    body = {"operation_id": uploaded.json()["operation_id"]}
    downloaded = await http.post(f"codeSessions/{SESSION}/downloadFiles", json=body)
    assert form(downloaded.json()) == form(sample("download_files.response"))


async def test_a_clean_only_upload(http: httpx.AsyncClient) -> None:
    await http.post("codeSessions", json=sample("create_code_session.request"))
    answer = await http.post(f"codeSessions/{SESSION}/uploadFiles", json=sample("upload_files.request_clean_only"))
    assert form(answer.json()) == form(sample("upload_files.response_clean_only"))


async def test_an_override(http: httpx.AsyncClient) -> None:
    answer = await http.post("codeSessions", json=sample("create_code_session.request_with_override"))
    expected = sample("create_code_session.response_override")
    assert answer.json()["endpoint"] == expected["endpoint"]
    pattern = r"__local_code_session_[A-Za-z0-9_-]{22}__"
    assert all(re.fullmatch(pattern, text["session_id"]) for text in (answer.json(), expected))


async def test_a_soft_delete(http: httpx.AsyncClient, settings: EmbeddedSettings) -> None:
    answer = await put(http, f"conversations/{CONVERSATION}/files?agentName=eval-agent", "bundle.zip", archive())
    file_id = answer.json()["id"]
    deleted = await http.delete(f"fileRecords/{file_id}")
    assert (deleted.status_code, deleted.content) == (200, b"")
    assert form(stored(settings, "file-record")) == form(sample("cosmos.file_record_soft_deleted"))
    again = await http.delete(f"fileRecords/{file_id}")
    assert again.status_code == 200
    assert _shape(again.json()) == _shape(sample("delete_file_record.failure_http200"))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"url": "codeSessions", "json": {"agent_name": "a"}}, "error_missing_property_http400"),
        ({"url": f"codeSessions/{SESSION}/executeCode", "json": {"code_to_execute": ""}}, "error_session_not_found_http500"),
        (
            {"url": "codeSessions", "json": sample("create_code_session.request") | {"language": "python"}},
            "create_code_session.error_validation_http500",
        ),
        ({"url": "agents/a/files", "files": {"f": ("logs.tar.gz", b"\x1f\x8b")}}, "error_upload_content_type_http415"),
        ({"url": "agents/a/files", "files": {"f": ("settings.toml", b"a=1")}}, "error_upload_extension_http415"),
        ({"url": "agents/a/files", "files": {"f": ("changes.patch", b"--- a")}}, "error_upload_mismatch_http422"),
        ({"url": "conversations/c/files", "files": {"f": ("a.txt", b"a")}}, "error_upload_no_agent_http400"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_refusals(http: httpx.AsyncClient, call: dict[str, Any], expected: str) -> None:
    answer = await http.post(**call)
    assert answer.status_code == int(expected[-3:])
    assert _shape(answer.json()) == _shape(sample(expected))


async def test_a_file_that_is_not_there(http: httpx.AsyncClient) -> None:
    answer = await http.get("files/file-20260129-101500-Qm9iLXRoZS1idWlsZGVyAA")
    assert answer.status_code == 500
    assert _shape(answer.json()) == _shape(sample("error_file_not_found_http500"))


def _shape(problem: dict[str, Any]) -> list[tuple[str, Any]]:
    """Everything but the sentences, which are nobody's contract."""
    free = {"detail", "errors", "traceId"}
    return [(key, type(value).__name__ if key in free else value) for key, value in problem.items()]
