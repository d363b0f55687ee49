"""A turn's hold on a code session, through the real client and the embedded Context API, with a container that a test plays by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from context_client import ContextClient, EmbeddedContext, UserIdentity, connect
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxEndpoint
from context_client.embedded.settings import EmbeddedSettings
from context_client.multipart import file_name_of
from context_client.size import SandboxSize
from orchestration_service import sessions
from orchestration_service.errors import SandboxUnavailable
from orchestration_service.sessions import Session, SessionSettings, open_session
from workflow_schemas.mailbox import Exchange, Message, Reply, encode

pytestmark = pytest.mark.anyio
USER = UserIdentity(name="Ann", upn="ann@contoso.example")
CONVERSATION = "conversation-1"
EXCHANGE = Exchange(run_id="run-12345678", messages=(Message(seq=1, kind="start", body={"plan": {}}),))


@dataclass
class Container:
    """A sandbox whose file store is a dictionary and whose executions end as the test says."""

    output: str = ""
    error: str = ""
    status: int = 200
    files: dict[str, bytes] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        self.sessions.append(session_id)
        return SandboxEndpoint(base_url="http://sandbox", transport=httpx.ASGITransport(app=self._app()))

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/code/execute", self._execute, methods=["POST"]),
                Route("/files", self._list),
                Route("/files/upload", self._upload, methods=["POST"]),
                Route("/files/download", self._download, methods=["POST"]),
                Route("/files/delete", self._delete, methods=["POST"]),
            ]
        )

    async def _execute(self, request: Request) -> Response:
        self.programs.append((await request.json())["code"])
        detail = {"results": {}, "output": self.output, "error": self.error}
        return JSONResponse({"detail": detail}, status_code=self.status)

    async def _list(self, request: Request) -> Response:
        return JSONResponse({"value": [_listed(name, len(content)) for name, content in self.files.items()]})

    async def _upload(self, request: Request) -> Response:
        head, _, rest = (await request.body()).partition(b"\r\n\r\n")
        name = file_name_of(head.decode("latin-1").replace("\r\n", ";")) or ""
        self.files[name] = rest[: rest.rindex(b"\r\n--")]
        return JSONResponse({"status": "success", "filename": name})

    async def _download(self, request: Request) -> Response:
        return Response(self.files[(await request.json())["file_name"]])

    async def _delete(self, request: Request) -> Response:
        self.files.clear()
        return JSONResponse({"status": "success"})


def _listed(name: str, size: int) -> dict[str, Any]:
    kind = {"type": "file", "contentType": "text/plain", "lastModifiedAt": "2026-01-01T00:00:00Z"}
    return {"name": name, "parentPath": "", "sizeInBytes": size, **kind}


@asynccontextmanager
async def opened(folder: Path, container: Container) -> AsyncIterator[ContextClient]:
    server = EmbeddedSettings.model_validate({"folder": folder / "context", "instance_id": "i", "api_key": "k"})
    async with connect(EmbeddedContext(server=server), providers={DEFAULT_PROVIDER_NAME: container}) as client:
        yield client


@pytest.fixture
def container() -> Container:
    return Container()


@pytest.fixture
async def client(tmp_path: Path, container: Container) -> AsyncIterator[ContextClient]:
    async with opened(tmp_path, container) as found:
        yield found


@pytest.fixture
async def session(client: ContextClient) -> Session:
    return await open_session(client, USER, agent_name="agent", conversation_id=CONVERSATION, settings=SessionSettings())


async def upload(client: ContextClient, name: str, content: bytes = b"text") -> None:
    await client.upload_conversation_file(USER, CONVERSATION, "agent", file_name=name, content=content, content_type="text/plain")


async def test_one_conversation_has_one_session_and_others_have_others(client: ContextClient) -> None:
    async def session_of(conversation: str) -> str:
        found = await open_session(client, USER, agent_name="a", conversation_id=conversation, settings=SessionSettings())
        return found.session_id

    long = "c" * 200
    ids = [await session_of(name) for name in ("one", "one", "two", long, long, long + "d")]
    assert ids[0] == ids[1] != ids[2]
    assert ids[3] == ids[4] != ids[5], "two long conversations that begin alike are kept apart"
    assert all(len(found) <= 128 and found.endswith("-claude-code") for found in ids)


async def test_an_exchange_carries_a_frame_and_counts_its_bytes(session: Session, container: Container) -> None:
    reply = Reply(generation="here", messages=(Message(seq=1, kind="event", body={"content": "'\"\\\n{}"}),))
    container.output = f"noise before\n{encode(reply)}\n"
    assert await session.exchange(EXCHANGE) == reply
    (program,) = container.programs
    frame = encode(EXCHANGE)
    assert program == f"from runner_image.exchange import main\nmain('{frame}')\n"
    assert (session.exchanges, session.bytes_in, session.bytes_out) == (1, len(frame), len(container.output))


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (Container(output="hello"), "does not run this project's runner"),
        (Container(error="ModuleNotFoundError: No module named 'runner_image'"), "No module named 'runner_image'"),
        (Container(error="ConnectionError: no runner came up in this sandbox: out of memory"), "out of memory"),
        (Container(output="FLLM1A:damaged"), "not a frame"),
        (Container(status=500), "does not answer"),
    ],
    ids=["foreign image", "no runner", "runner died", "damaged", "server fault"],
)
async def test_a_sandbox_that_is_not_ours_is_named(session: Session, words: str) -> None:
    with pytest.raises(SandboxUnavailable, match=words):
        await session.exchange(EXCHANGE)


async def test_files_of_the_conversation_are_put_into_the_store(client: ContextClient, session: Session, container: Container) -> None:
    await upload(client, "a b.txt", b"one")
    await upload(client, "notes.md", b"two")
    container.files["of an earlier turn"] = b"old"
    await session.fill(["a b.txt", "notes.md"])
    assert container.files == {"a b.txt": b"one", "notes.md": b"two"}


async def test_files_that_did_not_arrive_are_named(client: ContextClient, session: Session) -> None:
    await upload(client, "here.txt")
    missing = [f"gone{number}.txt" for number in range(30)]
    with pytest.raises(SandboxUnavailable) as refused:
        await session.fill(["here.txt", *missing])
    assert "'gone0.txt'" in str(refused.value)
    assert "and others" in str(refused.value)
    assert "here.txt" not in str(refused.value)
    assert "Attach them again" in str(refused.value)


async def test_outputs_become_records_and_refusals_are_kept(session: Session, container: Container) -> None:
    await session.fill([])
    container.files |= {"turn-001-log.txt": b"* log", "turn-001-x.patch": b"diff --git", "turn-001-t.tar": bytes(600)}
    fetched = await session.fetch()
    assert [record.file_name for record in fetched.records] == ["turn-001-log.txt"]
    assert sorted(path.lstrip("/") for path in fetched.refused) == ["turn-001-t.tar", "turn-001-x.patch"]
    assert await session.content(fetched.records[0].id) == b"* log"


async def test_what_cannot_be_read_back_is_said(session: Session) -> None:
    with pytest.raises(SandboxUnavailable, match="'file-nowhere'"):
        await session.content("file-nowhere")


async def test_a_context_api_that_refuses_us_is_named(tmp_path: Path, container: Container) -> None:
    async with opened(tmp_path, container):
        stranger = ContextClient(base_url="http://127.0.0.1:9", api_key="k", instance_id="i")
        async with stranger:
            with pytest.raises(SandboxUnavailable, match="does not answer"):
                await open_session(stranger, USER, agent_name="a", conversation_id="c", settings=SessionSettings())


async def test_a_server_that_has_been_patient_itself_is_not_asked_again(
    session: Session, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that stayed full for minutes: waiting for it four times over would outlast the platform."""
    monkeypatch.setattr(sessions, "_PATIENT_SECONDS", 0.0)
    monkeypatch.setattr(container, "_app", None)  # whoever starts it fails
    container.sessions.clear()
    with pytest.raises(SandboxUnavailable, match="could not be prepared"):
        await session.fill([])
    assert len(container.sessions) == 1


async def test_a_provider_that_does_not_exist_is_named(client: ContextClient) -> None:
    settings = SessionSettings(endpoint_provider="Nonsense")
    with pytest.raises(SandboxUnavailable, match="No sandbox could be opened"):
        await open_session(client, USER, agent_name="a", conversation_id="c", settings=settings)
