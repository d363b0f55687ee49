"""Samples of the Context API that other parts answer to: artifacts, configuration, errors, and the stock interpreter."""

import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_client import ContextClient, FileRecord, UserIdentity
from context_client.connect import RemoteContext
from context_client.embedded.app import open_app
from context_client.embedded.blobs import open_blobs
from context_client.embedded.container import SandboxLine, interpret_execution
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxEndpoint
from context_client.embedded.settings import EmbeddedSettings
from context_client.size import SandboxSize
from orchestration_service.answering import compose
from orchestration_service.collecting import collect
from orchestration_service.planning import SandboxLimits, make_plan
from orchestration_service.sessions import Session, SessionSettings
from runner_image.server.forkserver import ForkServer
from runner_image.server.serving import open_app as open_sandbox
from runner_image.server.settings import ServerSettings
from workflow_schemas.manifest import OutputFile, RunManifest
from workflow_schemas.platform import CompletionRequest, ContentArtifact, EndpointConfiguration, HistoryArtifact, to_wire
from workflow_schemas.receipt import Receipt

SAMPLES = Path(__file__).parent / "samples"
INSTANCE = "11111111-2222-3333-4444-555555555555"
CONVERSATION = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
SESSION = f"code-{CONVERSATION}-code"
CONTENT = b"0123456789abcde\n" * 128

pytestmark = pytest.mark.anyio


def sample(name: str, folder: str = "context_api") -> Any:
    return json.loads((SAMPLES / folder / f"{name}.json").read_text(encoding="utf-8"))


def user() -> UserIdentity:
    return UserIdentity.from_header(json.dumps(sample("header_x_user_identity")))


def given(body: bytes, *, status: int = 200, sent: list[httpx.Request] | None = None) -> httpx.MockTransport:
    """A server with one answer."""

    def answer(request: httpx.Request) -> httpx.Response:
        if sent is not None:
            sent.append(request)
        return httpx.Response(status, stream=httpx.ByteStream(body), headers={"content-type": "application/json"})

    return httpx.MockTransport(answer)


def renamed(value: dict[str, Any]) -> dict[str, Any]:
    """The sample with a name that an output of ours can have."""
    found: dict[str, Any] = json.loads(json.dumps(value).replace('"results.jsonl"', '"turn-001-results.jsonl"'))
    return found


# What a turn answers about its files.


@pytest.fixture
async def answer() -> dict[str, Any]:
    """The answer of a turn whose only output is the file of the samples, fetched and checked as in the service."""

    def platform(request: httpx.Request) -> httpx.Response:
        fetching = request.url.path.endswith("/downloadFiles")
        records = (
            (SAMPLES / "context_api" / "download_files.response.json").read_bytes().replace(b'"results.jsonl"', b'"turn-001-results.jsonl"')
        )
        return httpx.Response(200, content=records if fetching else CONTENT)

    output = OutputFile(
        name="turn-001-results.jsonl", role="output", sha256=hashlib.sha256(CONTENT).hexdigest(), size_bytes=len(CONTENT), byte_exact=True
    )
    manifest = RunManifest(run_id="run-00000001", turn_number=1, end_reason="completed", answer="Done.", outputs=(output,))
    client = ContextClient(base_url="http://context", api_key="k", instance_id=INSTANCE, transport=httpx.MockTransport(platform))
    async with client:
        session = Session(client, user(), SESSION)
        collected = await collect(session, manifest, "turn-001", await session.fetch())
    body = sample("llm_completion_request", "orchestration") | {"session_id": CONVERSATION}
    request = CompletionRequest.model_validate(body)
    planned = make_plan(request, run_id="run-00000001", turn_number=1, limits=SandboxLimits())
    receipt = Receipt(operation_id="o", turn_number=1, end_reason="completed", seconds=1, files=collected.files, lost=collected.lost)
    read: dict[str, Any] = json.loads(to_wire(compose(request, "o", planned, manifest, receipt)))
    return read


async def test_a_file_artifact_says_what_the_samples_says_and_more(answer: dict[str, Any]) -> None:
    known = renamed(sample("content_artifact.file"))
    (ours,) = [artifact for artifact in answer["content_artifacts"] if artifact["type"] == "File"]
    assert ours.keys() == {name for name, value in known.items() if value is not None} | {"source"}
    assert (ours["filepath"], ours["type"]) == (known["filepath"], known["type"])
    assert known["metadata"].items() <= ours["metadata"].items()


async def test_every_artifact_holds_text_only(answer: dict[str, Any]) -> None:
    """The platform's reader throws the whole answer away otherwise."""
    fields = sample("content_artifact.file").keys()
    for artifact in answer["content_artifacts"]:
        assert artifact.keys() <= fields
        assert all(isinstance(value, str) for value in artifact["metadata"].values())


async def test_a_file_link_is_the_sample_without_its_address(answer: dict[str, Any]) -> None:
    """The Orchestration API fills in `file_url`; readers in Python refuse an annotation that has one already."""
    known = renamed(sample("content_item.file_path_annotation"))
    (item,) = answer["content"]
    (ours,) = item["annotations"]
    assert ours == {name: value for name, value in known.items() if name != "file_url"}
    assert next(iter(ours)) == next(iter(known)) == "type"
    assert f"[{known['text']}](sandbox:/mnt/data/{known['text']})" in item["value"]


async def test_an_artifact_of_another_tool_is_read_and_could_be_written() -> None:
    known = sample("content_artifact.tool_execution")
    read = HistoryArtifact.model_validate(known)
    assert (read.type, read.metadata) == ("ToolExecution", known["metadata"])
    written = json.loads(to_wire(ContentArtifact.model_validate(known)))
    assert written == {name: value for name, value in known.items() if value is not None}


# Where the Context API is.


async def test_the_context_apis_address_ends_with_a_slash() -> None:
    """One slash joins it with the path, whoever wrote it; the exception of a user is for that user, and only when it is on."""
    known = sample("api_endpoint_configuration.context_api")
    endpoint = EndpointConfiguration.model_validate(known)
    assert endpoint.url_for(user().upn) == known["url"]
    on = {**known, "url_exceptions": [known["url_exceptions"][0] | {"enabled": True}]}
    assert EndpointConfiguration.model_validate(on).url_for(user().upn.upper()) == known["url_exceptions"][0]["url"]
    assert EndpointConfiguration.model_validate(on).url_for("eve@contoso.example") == known["url"]
    remote = RemoteContext.model_validate({"url": known["url"], "api_key": "k", "instance_id": INSTANCE})
    assert remote.api_key_header == known["authentication_parameters"]["api_key_header_name"]
    assert remote.timeout_seconds == known["timeout_seconds"]
    sent: list[httpx.Request] = []
    transport = given(json.dumps(sample("status.response")).encode(), sent=sent)
    async with ContextClient(base_url=remote.url, api_key="k", instance_id=INSTANCE, transport=transport) as client:
        await client.status()
    assert str(sent[0].url) == f"https://context.example/context/instances/{INSTANCE}/status"
    assert known["status_endpoint"] == "/status"


class Pool:
    """A container that answers with the samples."""

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        def answer(request: httpx.Request) -> httpx.Response:
            bodies = {
                "/files": (SAMPLES / "context_api" / "container.list.response.json").read_bytes(),
                "/files/delete": (SAMPLES / "context_api" / "container.delete.response.json").read_bytes(),
            }
            return httpx.Response(200, stream=httpx.ByteStream(bodies.get(request.url.path, CONTENT)))

        return SandboxEndpoint(base_url="http://pool", transport=httpx.MockTransport(answer))


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[ContextClient]:
    pools = sample("config.custom_container")["Endpoints"]
    settings = EmbeddedSettings.model_validate(
        {"folder": tmp_path, "instance_id": INSTANCE, "api_key": "k", "session_endpoint": pools[SessionSettings().language][0]}
    )
    async with open_app(settings, providers={DEFAULT_PROVIDER_NAME: Pool()}) as app:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with ContextClient(base_url="http://context", api_key="k", instance_id=INSTANCE, transport=transport) as client:
            yield client


@pytest.mark.parametrize("language", sample("config.custom_container")["Endpoints"])
async def test_a_session_can_ask_for_each_language_with_a_pool(embedded: ContextClient, language: str) -> None:
    session = await embedded.create_code_session(
        user(),
        agent_name="eval-agent",
        conversation_id=CONVERSATION,
        context="Code",
        endpoint_provider=DEFAULT_PROVIDER_NAME,
        language=language,
    )
    assert session.endpoint == sample("create_code_session.response")["endpoint"]


async def test_an_output_is_stored_as_the_sample(embedded: ContextClient, tmp_path: Path) -> None:
    """The stored document has the sample's names in its order, and no nulls; what differs is the time."""
    await embedded.create_code_session(
        user(), agent_name="eval-agent", conversation_id=CONVERSATION, context="Code", endpoint_provider=DEFAULT_PROVIDER_NAME
    )
    upload = await embedded.upload_to_session(user(), SESSION, [])
    (record,) = (await embedded.download_from_session(user(), SESSION, upload.operation_id)).file_records.values()
    with sqlite3.connect(tmp_path / "records.sqlite3") as database:
        rows = database.execute("SELECT body FROM documents WHERE type = 'file-record'").fetchall()
    (stored,) = [json.loads(row[0]) for row in rows]
    known = sample("cosmos.file_record")
    assert list(stored) == list(known)
    steady = ("type", "upn", "origin", "conversation_id", "agent_name", "file_name", "content_type", "file_size_bytes", "deleted")
    assert {name: stored[name] for name in steady} == {name: known[name] for name in steady}
    assert stored["metadata"] == known["metadata"] | {"code_session_file_upload_record_id": upload.operation_id}
    assert FileRecord.model_validate(stored) == record


# What a container says when it fails, and what an interpreter says that is none.

REFUSALS: Mapping[str, str] = {
    "list": "container.list.error_http500",
    "upload": "container.upload.error_http500",
    "download": "container.download.error_http500",
    "delete": "container.delete.error_http500",
}


@pytest.mark.parametrize("call", REFUSALS)
async def test_a_containers_refusal_is_no_file_and_no_success(call: str, tmp_path: Path) -> None:
    body = json.dumps(sample(REFUSALS[call])).encode()
    endpoint = SandboxEndpoint(base_url="http://pool")
    async with (
        httpx.AsyncClient(transport=given(body, status=500)) as http,
        open_blobs(tmp_path, INSTANCE) as blobs,
        blobs.spool() as spool,
    ):
        line = SandboxLine(http=http, endpoint=endpoint, session_id=SESSION, versioned=True, answer_limit=1000)
        match call:
            case "list":
                assert await line.list_files() == []
            case "upload":
                await spool.write(b"x")
                await blobs.store(spool, "file/x", as_text=False)
                assert not await line.upload("x", blobs, "file/x", 1)
            case "download":
                assert not await line.download("x", spool, 1000)
                assert spool.size_bytes == 0
            case "delete":
                assert not await line.delete_all()


async def test_the_interpreters_answer_is_not_taken_for_a_containers() -> None:
    """We do not speak to the platform's own interpreter; its answer, were it to come, is a failure and not an empty success."""
    body = json.dumps(sample("code_interpreter.execute.response_shape_read_by_context_api")).encode()
    read = interpret_execution(200, body)
    assert (read["status"], read["standard_output"]) == ("Failed", "")
    assert "'detail'" in read["error_output"]


async def test_our_container_runs_what_the_interpreter_is_asked(tmp_path: Path) -> None:
    """More than the code in the request does no harm."""
    settings = ServerSettings(data=tmp_path / "data")
    async with open_sandbox(settings, ForkServer(settings.data)) as app:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://sandbox") as client:
            answer = await client.post("/code/execute", json=sample("code_interpreter.execute.request"))
    assert (answer.status_code, answer.json()) == (200, sample("container.execute.response_no_result"))
