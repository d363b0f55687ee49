"""Files: names, half uploads, large bodies, a root that was tampered with."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from context_client.conformance.container import delete, download, listing, upload
from runner_image.server.errors import BadName
from runner_image.server.names import filename_of, split_name

HUNDRED_MEBIBYTES = 100 << 20


@pytest.mark.parametrize(
    "name",
    ["", "/", "/x", "../x", "a/..", "a//b", "a/", ".", "./a", "n\0ul", "n" * 256, "ü" * 128, "\ud800", ".upload-in-progress-1", 7, None],
    ids=ascii,
)
def test_name_is_refused(name: object) -> None:
    with pytest.raises(BadName):
        split_name(name)


@pytest.mark.parametrize(
    "name", ["a", "a/b c", "..a", "...", "n" * 255, "\N{SLIGHTLY SMILING FACE}", "a\\b", "new\nline", "\udcff"], ids=ascii
)
def test_name_is_taken(name: str) -> None:
    assert "/".join(split_name(name)) == name


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b"form-data; name=file; filename=a.txt", "a.txt"),
        (b'form-data; name=file; filename="a;b.txt"', "a;b.txt"),
        (b'form-data; filename="say \\"hi\\".txt"; name=file', 'say "hi".txt'),
        (b"form-data; name=file; filename=\"=?utf-8?B?w6Q=?=\"; filename*=utf-8''%C3%B6", "ö"),
        (b"form-data; name=file; filename*=nonsense''%ff; filename=plain", "plain"),
        (b'form-data; name=file; filename="=?nonsense?B?w6Q=?="', "=?nonsense?B?w6Q=?="),
        (b'form-data; name=file; filename=""', ""),
        (b"form-data; name=file", None),
        (b"\xff\xfe", None),
    ],
    ids=ascii,
)
def test_file_name_in_a_header(header: bytes, name: str | None) -> None:
    assert filename_of(header) == name


@pytest.mark.anyio
async def test_hundred_mebibytes_and_back(client: httpx.AsyncClient, data: Path) -> None:
    block = os.urandom(1 << 20)

    async def body() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name=file; filename="large"\r\n\r\n'
        for _ in range(HUNDRED_MEBIBYTES // len(block)):
            yield block
        yield b"\r\n--b--\r\n"

    answer = await client.post("/files/upload", content=body(), headers={"content-type": "multipart/form-data; boundary=b"})
    assert answer.json() == {"status": "success", "filename": "large"}
    received = 0
    async with client.stream("POST", "/files/download", json={"file_name": "large"}) as stream:
        async for chunk in stream.aiter_bytes(len(block)):
            assert chunk == block
            received += len(chunk)
    assert received == HUNDRED_MEBIBYTES


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


@pytest.mark.anyio
async def test_a_cut_upload_leaves_nothing(client: httpx.AsyncClient, data: Path) -> None:
    socket_path = str(data.with_name("s.sock"))
    async with await anyio.connect_unix(socket_path) as stream:
        head = b"POST /files/upload HTTP/1.1\r\nHost: s\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 9999999\r\n\r\n"
        await stream.send(head + b"--b\r\nContent-Disposition: form-data; name=file; filename=half\r\n\r\n" + bytes(2 << 20))
        with anyio.fail_after(5):
            while not names_in(data):
                await anyio.sleep(0.01)
        assert await listing(client) == {}, "a half file is not shown"
    with anyio.fail_after(5):
        while names_in(data):
            await anyio.sleep(0.01)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data; boundary=b", b"nonsense"),
        ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; name=file; filename=x\r\n\r\nno end"),
        ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; name=field\r\n\r\nx\r\n--b--\r\n"),
        ("multipart/form-data", b""),
        ("application/json", b"{}"),
    ],
    ids=["nonsense", "cut", "no file", "no boundary", "not multipart"],
)
async def test_bad_upload_is_the_callers_fault(client: httpx.AsyncClient, data: Path, content_type: str, body: bytes) -> None:
    answer = await client.post("/files/upload", content=body, headers={"content-type": content_type})
    assert answer.status_code == 400
    assert names_in(data) == []


@pytest.mark.anyio
async def test_upload_onto_a_directory_is_refused(client: httpx.AsyncClient, data: Path) -> None:
    (data / "place").mkdir(parents=True)
    assert (await upload(client, "place", b"x")).status_code == 400
    assert (await upload(client, "place/under", b"x")).is_success
    assert (await upload(client, "place/under/file", b"x")).status_code == 400
    assert list((await listing(client)).keys()) == ["place/under"]


@pytest.fixture
def outside(data: Path) -> Path:
    """A directory with a secret, and the data root replaced by a link to it."""
    outside = data.with_name("outside")
    outside.mkdir()
    (outside / "secret").write_text("s")
    data.symlink_to(outside)
    return outside


@pytest.mark.anyio
async def test_root_replaced_by_a_link_leads_nowhere(outside: Path, client: httpx.AsyncClient) -> None:
    assert (await upload(client, "x", b"x")).status_code == 500
    assert (await download(client, "secret")).status_code in {404, 500}
    await delete(client)
    assert (await upload(client, "x", b"x")).is_success
    assert names_in(outside) == ["secret"]


@pytest.mark.anyio
async def test_unknown_route_and_method(client: httpx.AsyncClient) -> None:
    assert (await client.get("/nowhere")).status_code == 404
    assert (await client.get("/code/execute")).status_code == 405
    assert (await client.get("http://server//files")).status_code == 200, "a configured trailing slash arrives doubled"
    assert (await client.get("/health")).json()["status"] == "ready"
