"""downloadFiles and uploads under a name: the same name gives the same records, for the same user and session, also after a restart."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from context_client import ContextClient, EmbeddedContext, ServerFault, SessionDownload, UserIdentity, connect
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxEndpoint
from context_client.embedded.settings import EmbeddedSettings
from context_client.size import SandboxSize

pytestmark = pytest.mark.anyio

ANN = UserIdentity(name="Ann", upn="ann@contoso.example")
BOB = UserIdentity(name="Bob", upn="bob@contoso.example")


class OneFile:
    """A sandbox with one output; it takes its time to hand it over, and counts."""

    def __init__(self) -> None:
        self.given = 0
        self.found = SandboxEndpoint(base_url="http://s", transport=httpx.MockTransport(self._answer), timeout_seconds=2)

    async def endpoint(self, *, session_id: str, upn: str, size: SandboxSize | None = None) -> SandboxEndpoint:
        return self.found

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/files"):
            listed = {"name": "out.txt", "type": "file", "contentType": "text/plain", "sizeInBytes": 2, "parentPath": ""}
            return _streamed(json.dumps({"value": [{**listed, "lastModifiedAt": "2026-01-01T00:00:00Z"}]}).encode())
        if request.url.path.endswith("/download"):
            self.given += 1
            await asyncio.sleep(0.05)
            return _streamed(b"ok")
        return _streamed(b'{"status": "success"}')


def _streamed(content: bytes) -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(content))


@asynccontextmanager
async def opened(settings: EmbeddedSettings, sandbox: OneFile, user: UserIdentity = ANN) -> AsyncIterator[tuple[ContextClient, str, str]]:
    async with connect(EmbeddedContext(server=settings), providers={DEFAULT_PROVIDER_NAME: sandbox}) as client:
        session = await client.create_code_session(
            user, agent_name="a", conversation_id="c", context="x", endpoint_provider=DEFAULT_PROVIDER_NAME
        )
        upload = await client.upload_to_session(user, session.session_id, [])
        yield client, session.session_id, upload.operation_id


@pytest.fixture
def settings(tmp_path: Path) -> EmbeddedSettings:
    return EmbeddedSettings.model_validate({"folder": tmp_path, "instance_id": "i", "api_key": "k"})


def ids(download: SessionDownload) -> set[str]:
    return set(download.file_records)


async def test_the_same_name_gives_the_same_records(settings: EmbeddedSettings) -> None:
    sandbox = OneFile()
    async with opened(settings, sandbox) as (client, session, upload):
        first = await client.download_from_session(ANN, session, upload, key="one")
        again = await client.download_from_session(ANN, session, upload, key="one")
        other = await client.download_from_session(ANN, session, upload, key="two")
        unnamed = await client.download_from_session(ANN, session, upload)
    assert ids(first) == ids(again) != ids(other)
    assert again.file_records == first.file_records
    assert [found.repeatable for found in (first, again, other, unnamed)] == [True, True, True, False]
    assert sandbox.given == 3


async def test_a_call_that_still_runs_is_waited_for(settings: EmbeddedSettings) -> None:
    sandbox = OneFile()
    async with opened(settings, sandbox) as (client, session, upload):
        calls = [client.download_from_session(ANN, session, upload, key="one") for _ in range(4)]
        found = await asyncio.gather(*calls)
    assert len({frozenset(ids(one)) for one in found}) == 1
    assert sandbox.given == 1


async def test_it_survives_a_restart(settings: EmbeddedSettings) -> None:
    """The upload of the first life names the call in the second one."""
    async with opened(settings, OneFile()) as (client, session, upload):
        first = await client.download_from_session(ANN, session, upload, key="one")
    sandbox = OneFile()
    async with opened(settings, sandbox) as (client, session, _):
        again = await client.download_from_session(ANN, session, upload, key="one")
    assert ids(first) == ids(again)
    assert sandbox.given == 0


async def test_names_of_others_mean_nothing(settings: EmbeddedSettings) -> None:
    async with opened(settings, OneFile()) as (client, session, upload):
        first = await client.download_from_session(ANN, session, upload, key="one")
    async with opened(settings, OneFile(), BOB) as (client, session, upload):
        theirs = await client.download_from_session(BOB, session, upload, key="one")
    assert not ids(first) & ids(theirs)


async def test_a_file_deleted_since_stays_deleted(settings: EmbeddedSettings) -> None:
    async with opened(settings, OneFile()) as (client, session, upload):
        first = await client.download_from_session(ANN, session, upload, key="one")
        await client.delete_file_record(ANN, next(iter(ids(first))))
        again = await client.download_from_session(ANN, session, upload, key="one")
    assert ids(again) == set()


class BreakingOff(OneFile):
    """A sandbox with two outputs, the second of which it does not hand over for some time."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/files"):
            listed = {"type": "file", "contentType": "text/plain", "sizeInBytes": 2, "lastModifiedAt": "2026-01-01T00:00:00Z"}
            return _streamed(json.dumps({"value": [{**listed, "name": name} for name in ("one.txt", "two.txt")]}).encode())
        if b"two.txt" in request.content and self.failures:
            self.failures -= 1
            raise httpx.ReadError("the sandbox hung up", request=request)
        return await super()._answer(request)


async def test_a_download_that_broke_off_leaves_nothing_behind(settings: EmbeddedSettings) -> None:
    """So that the repetition does not make the first file a second time."""
    async with opened(settings, BreakingOff(2)) as (client, session, upload):
        with pytest.raises(ServerFault):
            await client.download_from_session(ANN, session, upload, key="one")
        again = await client.download_from_session(ANN, session, upload, key="one")
    assert sorted(record.file_name for record in again.file_records.values()) == ["one.txt", "two.txt"]
    with closing(sqlite3.connect(settings.folder / "records.sqlite3")) as database:
        kept = database.execute("SELECT file_name FROM documents WHERE type='file-record' AND NOT deleted").fetchall()
    assert sorted(kept) == [("one.txt",), ("two.txt",)]


async def test_a_sandbox_that_hangs_up_once_is_asked_again(settings: EmbeddedSettings) -> None:
    async with opened(settings, BreakingOff(1)) as (client, session, upload):
        found = await client.download_from_session(ANN, session, upload)
    assert len(found.file_records) == 2


async def test_a_file_uploaded_under_a_name_is_kept_once(settings: EmbeddedSettings) -> None:
    async with opened(settings, OneFile()) as (client, _, _):
        names = ("one", "one", "two", None)
        records = [await client.upload_conversation_file(ANN, "c", "a", "log.txt", b"ok", "text/plain", key=name) for name in names]
    assert records[0] == records[1]
    assert len({record.id for record in records}) == 3
    assert [record.repeatable for record in records] == [True, True, True, False]
