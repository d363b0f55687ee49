"""The embedded server at its edges: bad callers, odd names, big bodies."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from context_client import ContextClient, NotFoundOrNotOwned, ServerFault, TooLarge, UserIdentity
from context_client.conformance.context_api import Ground
from context_client.embedded.app import open_app
from context_client.embedded.paths import canonical
from context_client.embedded.settings import EmbeddedSettings

pytestmark = pytest.mark.anyio

ROUTES = [
    ("POST", "codeSessions"),
    ("POST", "codeSessions/s/uploadFiles"),
    ("POST", "codeSessions/s/executeCode"),
    ("POST", "codeSessions/s/downloadFiles"),
    ("POST", "conversations/c/files"),
    ("POST", "agents/a/files"),
    ("GET", "files/f"),
    ("GET", "fileRecords/f"),
    ("DELETE", "fileRecords/f"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_the_instance_is_checked_before_the_key(http: httpx.AsyncClient, method: str, path: str) -> None:
    wrong = await http.request(method, f"http://context/instances/other/{path}", headers={"X-API-KEY": "no"})
    assert (wrong.status_code, wrong.headers["content-type"]) == (403, "text/plain; charset=utf-8")
    keyless = await http.request(method, path, headers={"X-API-KEY": "no"})
    assert (keyless.status_code, keyless.headers["content-type"]) == (401, "text/plain; charset=utf-8")
    asked = await http.request(method, path, headers={b"X-API-KEY": b"\xe9", b"Accept": b"application/json"})
    assert isinstance(asked.json(), str)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_without_a_user_the_server_stumbles_like_the_real_one(http: httpx.AsyncClient, method: str, path: str) -> None:
    del http.headers["X-USER-IDENTITY"]
    answer = await http.request(method, path)
    assert (answer.status_code, answer.json()["title"]) == (500, "NullReferenceException")
    for text in ("nonsense", '{"upn": 1}', '{"upn": "\\ud800"}'):
        broken = await http.request(method, path, headers={"X-USER-IDENTITY": text})
        assert (broken.status_code, broken.headers["content-type"]) == (500, "application/problem+json")


async def test_status_is_for_anybody(http: httpx.AsyncClient) -> None:
    http.headers.clear()
    assert (await http.get("status")).json()["status"] == "Ready"
    assert "GET" in (await http.options("status")).headers["allow"]


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"", "application/json", 400),
        (b"no", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"{}", "application/json", 400),
        (b'{"code_to_execute": 7}', "application/json", 400),
        (b'{"code_to_execute": null}', "application/json", 400),
        (b'{"code_to_execute": "\\ud800"}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"code_to_execute": "1"}', "application/vnd.x+json; charset=utf-8", 500),
    ],
    ids=range(12),
)
async def test_bodies_that_do_not_fit_are_the_callers_fault(
    http: httpx.AsyncClient, content: bytes, content_type: str, status: int
) -> None:
    answer = await http.post("codeSessions/s/executeCode", content=content, headers={"Content-Type": content_type})
    assert answer.status_code == status
    assert answer.json()["status"] == status


@pytest.mark.parametrize("path", ["nothing", "files/a/b", "codeSessions/s/other", "codeSessions/a%2Fb/executeCode"])
async def test_other_paths_and_methods_get_a_well_formed_answer(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).json()["status"] == 404
    assert (await http.put("codeSessions")).json()["status"] == 405


async def test_fixed_words_may_have_any_case_and_ids_may_not(ground: Ground, http: httpx.AsyncClient) -> None:
    record = await ground.put("a.txt", b"a")
    assert (await http.get(f"FILERECORDS/{record.id}")).status_code == 200
    assert (await http.get(f"fileRecords/{record.id.swapcase()}")).status_code == 500
    assert canonical("/INSTANCES/I/codesessions/FILES/EXECUTECODE/") == "/instances/I/codeSessions/FILES/executeCode"


FORMS: dict[str, tuple[str, bytes, int]] = {
    "not a form": ("application/json", b"{}", 400),
    "no boundary": ("multipart/form-data", b"--b\r\n", 400),
    "no file": ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--', 400),
    "nothing": ("multipart/form-data; boundary=b", b"", 400),
    "garbage": ("multipart/form-data; boundary=b", b"garbage", 400),
    "cut": ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; filename=a.txt\r\n\r\nhal", 400),
    "long boundary": (f"multipart/form-data; boundary={'b' * 5000}", b"--b", 400),
    "long header": ("multipart/form-data; boundary=b", b"--b\r\nX: " + b"x" * 99_999, 400),
    "unnamed field": ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; filename=a.txt\r\n\r\nx\r\n--b--", 200),
}


@pytest.mark.parametrize("case", FORMS)
async def test_forms(case: str, http: httpx.AsyncClient) -> None:
    content_type, content, status = FORMS[case]
    answer = await http.post("agents/a/files", content=content, headers={"Content-Type": content_type})
    assert answer.status_code == status, answer.text
    assert answer.content


async def test_the_first_file_counts_whatever_its_field(http: httpx.AsyncClient) -> None:
    files = [("x", ("one.txt", b"1")), ("file", ("two.txt", b"2"))]
    answer = await http.post("agents/a/files", data={"note": "n"}, files=files)
    assert answer.json()["file_name"] == "one.txt"


HOSTILE = ["../../../etc/passwd.txt", "nul\0byte.txt", "é" * 300 + ".txt", "🎉.txt", "/etc/x.txt", "a\\..\\b.txt", "\r\n.txt", "..txt"]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_names_are_kept_and_never_used(name: str, ground: Ground, settings: EmbeddedSettings) -> None:
    record = await ground.put(name, b"content")
    assert record.file_name == name
    content = await ground.client.file_content(ground.user, record.id)
    assert (content.file_name, content.content) == (name, b"content")
    _assert_only_hashes(settings.folder)


@pytest.mark.parametrize("conversation", ["..%2f..%2fx", "\0", "🎉" * 100, "con", "~root", "-rf"], ids=range(6))
async def test_hostile_conversations_stay_in_the_folder(
    conversation: str, client: ContextClient, user: UserIdentity, settings: EmbeddedSettings
) -> None:
    record = await client.upload_conversation_file(user, conversation, "a", "x.txt", b"content")
    assert record.file_path == f"file/users/dana-scott-contoso-example/{conversation}/{record.id}.txt"
    assert (await client.file_content(user, record.id)).content == b"content"
    _assert_only_hashes(settings.folder)


def _assert_only_hashes(folder: Path) -> None:
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    blobs = {name for name in names if not name.startswith("records.sqlite3")}
    assert len(blobs) == 1
    assert all(len(name) == 64 and int(name, 16) for name in blobs)


async def test_owners_are_told_apart_by_case(ground: Ground) -> None:
    record = await ground.put("a.txt", b"a")
    shouting = UserIdentity(upn=ground.user.upn.upper())
    with pytest.raises(NotFoundOrNotOwned):
        await ground.client.file_record(shouting, record.id)


async def test_too_much_is_refused_announced_or_not(settings: EmbeddedSettings, user: UserIdentity, tmp_path: Path) -> None:
    small = settings.model_copy(update={"body_limit_bytes": 2_000_000})
    async with open_app(small, providers={}) as app:
        transport = httpx.ASGITransport(app=app)
        async with ContextClient(
            base_url="http://x", api_key="a-key-for-tests", instance_id=small.instance_id, transport=transport
        ) as client:
            with pytest.raises(TooLarge):
                await client.upload_agent_file(user, "a", "a.txt", b"x" * 2_000_000)
            with pytest.raises(TooLarge):
                await client.execute_code(user, "s", "x" * 2_000_001)
            await client.upload_agent_file(user, "a", "a.txt", b"x" * 1_500_000)
        headers = {"X-API-KEY": "a-key-for-tests", "X-USER-IDENTITY": json.dumps({"upn": "u"})}
        async with httpx.AsyncClient(transport=transport, base_url=f"http://x/instances/{small.instance_id}") as http:
            form = {**headers, "Content-Type": "multipart/form-data; boundary=b"}
            answer = await http.post("agents/a/files", content=_endless(), headers=form)
    assert answer.status_code == 413
    assert list((small.folder / "incoming").iterdir()) == []


async def _endless() -> Any:
    yield b"--b\r\nContent-Disposition: form-data; filename=a.txt\r\n\r\n"
    for _ in range(100):
        yield b"x" * 100_000


async def test_text_is_stored_as_utf8_and_sizes_differ(ground: Ground) -> None:
    text = "Die Prüfung läuft über größere Flächen, natürlich für alle. " * 20
    record = await ground.put("a.txt", text.encode("cp1252"))
    content = (await ground.client.file_content(ground.user, record.id)).content
    assert content.decode("utf-8") == text
    assert record.file_size_bytes == len(text) < len(content)


async def test_large_files_pass_through_the_disk(ground: Ground) -> None:
    content = b"PK\x03\x04" + bytes(range(256)) * 40_000
    record = await ground.put("big.zip", content)
    assert (await ground.client.file_content(ground.user, record.id)).content == content


async def test_a_missing_blob_is_an_error_not_an_empty_file(ground: Ground, settings: EmbeddedSettings) -> None:
    record = await ground.put("a.zip", b"PK\x03\x04")
    for blob in (settings.folder / "blobs").glob("*/*"):
        await asyncio.to_thread(blob.unlink)
    with pytest.raises(ServerFault, match="missing"):
        await ground.client.file_content(ground.user, record.id)
    await ground.client.delete_file_record(ground.user, record.id)


async def test_a_disk_that_takes_no_more_is_an_answer_not_a_crash(ground: Ground, settings: EmbeddedSettings) -> None:
    """The record stays, as in the real server; what cannot be kept is said, while receiving and while storing."""
    await asyncio.to_thread(_replace_by_file, settings.folder / "blobs")
    with pytest.raises(ServerFault, match="could not be stored"):
        await ground.put("a.zip", b"PK\x03\x04")
    await asyncio.to_thread(_replace_by_file, settings.folder / "incoming")
    with pytest.raises(ServerFault, match="could not be kept"):
        await ground.put("big.zip", b"PK\x03\x04" + bytes(3_000_000))


async def test_a_database_that_takes_no_more_is_an_answer_not_a_crash(ground: Ground, settings: EmbeddedSettings) -> None:
    with sqlite3.connect(settings.folder / "records.sqlite3") as database:
        database.execute("CREATE TRIGGER full BEFORE INSERT ON documents BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    with pytest.raises(ServerFault, match="disk is full"):
        await ground.put("a.zip", b"PK\x03\x04")
    with sqlite3.connect(settings.folder / "records.sqlite3") as database:
        database.execute("DROP TRIGGER full")
    assert (await ground.put("a.zip", b"PK\x03\x04")).id


def _replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


async def test_a_failed_delete_may_be_an_honest_500(settings: EmbeddedSettings, user: UserIdentity) -> None:
    honest = settings.model_copy(update={"failed_delete_is_200": False})
    async with open_app(honest, providers={}) as app:
        headers = {"X-API-KEY": "a-key-for-tests", "X-USER-IDENTITY": user.to_header()}
        url = f"http://x/instances/{honest.instance_id}/fileRecords/f"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), headers=headers) as http:
            assert (await http.delete(url)).status_code == 500


async def test_records_outlive_the_server(settings: EmbeddedSettings, ground_for: Callable[[ContextClient], Ground]) -> None:
    async def run(app: FastAPI, record_id: str | None) -> str:
        transport = httpx.ASGITransport(app=app)
        async with ContextClient(
            base_url="http://x", api_key="a-key-for-tests", instance_id=settings.instance_id, transport=transport
        ) as client:
            ground = ground_for(client)
            if record_id is None:
                return (await ground.put("a.txt", b"kept")).id
            return (await client.file_content(ground.user, record_id)).content.decode()

    async with open_app(settings, providers={}) as app:
        record_id = await run(app, None)
    async with open_app(settings, providers={}) as app:
        assert await run(app, record_id) == "kept"


async def test_the_description_names_every_route(http: httpx.AsyncClient) -> None:
    described = (await http.get("http://context/openapi.json")).json()
    assert sum(len(methods) for methods in described["paths"].values()) == 11
