"""The container's samples: the server writes what the Context API reads, and our reader reads what a server writes."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from uvicorn.server import Server

from context_client.conformance.container import ITEM_KEYS, delete, execute, listing, upload, upload_raw
from context_client.embedded.container import interpret_execution, parse_listing
from runner_image.server.forkserver import ForkServer
from runner_image.server.serving import open_app, server_config
from runner_image.server.settings import ServerSettings

SAMPLES = Path(__file__).parent / "samples" / "context_api"

PANDAS = """
class DataFrame:
    def to_csv(self, path): open(path, 'w').write(',a,b\\n0,1,x\\n')
    def head(self, rows): return self
    def to_json(self, orient): return '{"schema": {}, "data": [{"index": 0, "a": 1, "b": "x"}]}'
"""
"""Stands for the real library, which the tests do not install; only its interface is used."""


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"container.{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
async def client(short_directory: Path, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    settings = ServerSettings(data=short_directory / "data")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_directory / "s"))
        listener.listen()
        async with open_app(settings, ForkServer(settings.data)) as app, anyio.create_task_group() as group:
            server = Server(server_config(app))
            group.start_soon(server.serve, [listener])
            transport = httpx.AsyncHTTPTransport(uds=str(short_directory / "s"))
            async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=30) as client:
                yield client
            server.should_exit = True


@pytest.mark.anyio
async def test_execute_answers_the_samples(client: httpx.AsyncClient) -> None:
    answer = await client.post("/code/execute", json=sample("execute.request"))
    assert answer.json() == sample("execute.response_ok")
    answer = await client.post("/code/execute", json={"code": "print('done')"})
    assert answer.json() == sample("execute.response_no_result")


@pytest.mark.anyio
async def test_table_is_summarised_as_in_the_sample(client: httpx.AsyncClient) -> None:
    await upload(client, "pandas.py", PANDAS.encode())
    detail = await execute(client, "import pandas\ndf = pandas.DataFrame()\ndf")
    found, known = (json.loads(source["results"]["df"]) for source in (detail, sample("execute.response_dataframe")["detail"]))
    assert found | {"details": ""} == known | {"details": ""}
    assert any(name.startswith("df_") and name.endswith(".csv") for name in await listing(client))


@pytest.mark.anyio
@pytest.mark.parametrize("body", ['{"code": "raise ValueError(1)"}', "{}", "not json"], ids=["raises", "no code", "not json"])
async def test_failures_have_the_keys_of_the_sample_but_never_its_status(client: httpx.AsyncClient, body: str) -> None:
    """The stock container answers 400, 422 and 500, which costs the caller the body."""
    answer = await client.post("/code/execute", content=body)
    assert answer.status_code == 200
    assert answer.json()["detail"].keys() == sample("execute.response_user_exception")["detail"].keys()


INLINE = {"codeInputType": "inline", "executionType": "synchronous"}


@pytest.mark.anyio
async def test_who_speaks_to_a_code_interpreter_pool_is_answered_in_its_forms(client: httpx.AsyncClient) -> None:
    """In the one the Context API reads from such pools, and in the first one, whose body this is."""
    request, known = (
        json.loads((SAMPLES / f"code_interpreter.execute.{name}.json").read_text(encoding="utf-8"))
        for name in ("request", "response_shape_read_by_context_api")
    )
    for properties in (request, INLINE | {"code": request["code"]}, {"code": request["code"]}):
        answer = (await client.post("/code/execute", json={"properties": properties})).json()
        assert answer.keys() == {"properties", "status", "result"}
        took = answer["result"].pop("executionTimeInMilliseconds")
        assert (answer["status"], answer["result"]) == (known["status"], known["result"])
        first = {"status": "Success", "stdout": "done\n", "stderr": "", "result": "", "executionTimeInMilliseconds": took}
        assert answer["properties"] == first


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("properties", "words"),
    [
        pytest.param({"code": "raise ValueError('bad')"}, "ValueError: bad", id="raises"),
        pytest.param({}, "no text under 'code'", id="no code"),
        pytest.param({"code": "1", "executionType": "asynchronous"}, "executionType 'asynchronous'", id="asynchronous"),
        pytest.param({"code": "1", "codeInputType": None}, "codeInputType 'None'", id="odd kind"),
    ],
)
async def test_a_failure_is_told_in_the_forms_of_a_code_interpreter_pool(
    client: httpx.AsyncClient, properties: dict[str, object], words: str
) -> None:
    answer = await client.post("/code/execute", json={"properties": properties})
    assert answer.status_code == 200
    told = answer.json()
    assert (told["status"], told["properties"]["status"]) == ("Failed", "Failure")
    assert words in told["result"]["stderr"] == told["properties"]["stderr"]


@pytest.mark.anyio
async def test_a_body_with_code_of_its_own_is_the_platforms(client: httpx.AsyncClient) -> None:
    answer = await client.post("/code/execute", json={"code": "print(1)", "properties": {"code": "print(2)"}, **INLINE})
    assert answer.json() == {"detail": {"results": {}, "output": "1\n", "error": ""}}


@pytest.mark.anyio
async def test_file_routes_answer_the_samples(client: httpx.AsyncClient) -> None:
    assert (await client.get("/files")).json() == sample("list.response_empty")
    answer = await upload_raw(client, b"form-data; name=file; filename=notes.txt", b"x")
    assert answer.json() == sample("upload.response")
    assert (await client.post("/files/delete")).json() == sample("delete.response")


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["list.response", "list.response_recommended_nested_for_our_runner"], ids=["flat", "nested"])
async def test_listing_has_the_shape_of_the_sample(client: httpx.AsyncClient, name: str) -> None:
    known = sample(name)["value"][0]
    await delete(client)
    await upload(client, known["name"], b"x" * known["sizeInBytes"])
    found = (await listing(client))[known["name"]]
    assert {key: type(value) for key, value in found.items()} == {key: type(value) for key, value in known.items()}
    steady = found.keys() - {"lastModifiedAt", "contentType"}
    assert {key: found[key] for key in steady} == {key: known[key] for key in steady}


@pytest.mark.anyio
async def test_download_takes_the_sample(client: httpx.AsyncClient) -> None:
    answer = await client.post("/files/download", json=sample("download.request"))
    assert answer.status_code == 404
    assert answer.json().keys() == sample("download.error_http500").keys()
    await upload(client, sample("download.request")["file_name"], b"bytes")
    answer = await client.post("/files/download", json=sample("download.request"))
    assert (answer.content, answer.headers["content-type"]) == (b"bytes", "application/octet-stream")


@pytest.mark.parametrize("name", ["list.response", "list.response_empty", "list.response_recommended_nested_for_our_runner"])
def test_listing_samples_are_read(name: str) -> None:
    value = sample(name)
    items = parse_listing(json.dumps(value).encode())
    assert [item["name"] for item in items] == [item["name"] for item in value["value"]]
    assert all(item.keys() >= ITEM_KEYS for item in value["value"])


@pytest.mark.parametrize(
    "name",
    ["execute.response_ok", "execute.response_no_result", "execute.response_user_exception", "execute.response_dataframe"],
)
def test_execution_samples_are_read(name: str) -> None:
    value = sample(name)
    result = interpret_execution(200, json.dumps(value).encode())
    assert result["status"] == "Succeeded"
    assert (result["standard_output"], result["error_output"]) == (value["detail"]["output"], value["detail"]["error"])


@pytest.mark.parametrize("name", ["execute.response_internal_http500", "execute.response_missing_code_http400"])
def test_error_samples_lose_their_words(name: str) -> None:
    result = interpret_execution(int(name[-3:]), json.dumps(sample(name)).encode())
    assert result["status"] == "Failed"
    assert result["standard_output"] == ""
