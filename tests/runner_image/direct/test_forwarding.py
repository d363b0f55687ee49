"""From the relay to a real endpoint over TCP and a Unix socket: where it goes, with which key, and what comes of faults."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from runner_image.direct.endpoint import ModelEndpoint, find_endpoint
from runner_image.direct.errors import EndpointUnusable
from runner_image.direct.forwarding import ForwardingLimits, forward_to

pytestmark = pytest.mark.anyio

QUICK = ForwardingLimits(silence_seconds=0.5, call_seconds=3, first_wait_seconds=0.01)
BODY = json.dumps({"model": "m", "max_tokens": 10, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}).encode()


def scripted(*steps: dict[str, Any]) -> ScriptedModel:
    """A model that wants the key."""
    return ScriptedModel(Script.model_validate({"name": "t", "steps": steps}), expected_key=SecretStr("k"))


async def ask(model: ScriptedModel, tmp: Path | None = None, *, key: str = "k") -> tuple[int, dict[str, Any], float | None]:
    """Make one call through the forwarding."""
    async with serve(model, uds=tmp / "m.sock" if tmp else None) as server:
        variables = {"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": f"{server.base_url}/gateway/"}
        if tmp:
            variables["ANTHROPIC_UNIX_SOCKET"] = str(server.uds)
        async with forward_to(find_endpoint(variables), QUICK) as calls:
            await calls.probe()
            return await calls.call("/v1/messages", {"anthropic-version": "2023-06-01", "anthropic-beta": "x"}, BODY)


@pytest.mark.parametrize("over_socket", [pytest.param(False, id="tcp"), pytest.param(True, id="unix socket")])
async def test_a_call_arrives_with_the_key_and_comes_back_whole(short_directory: Path, over_socket: bool) -> None:
    model = scripted({"thinking": "Hm.", "text": "Däne 🙂", "usage": {"output_tokens": 7}})
    status, answer, _ = await ask(model, short_directory if over_socket else None)
    assert (status, answer["content"][1]["text"], answer["usage"]["output_tokens"]) == (200, "Däne 🙂", 7)
    (received,) = model.received
    assert received.path == "/gateway/v1/messages"
    assert (received.headers["anthropic-version"], received.headers["anthropic-beta"]) == ("2023-06-01", "x")
    assert received.body == json.loads(BODY)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"http": {"status": 429, "headers": {"retry-after": "0"}}}, id="429"),
        pytest.param({"http": {"status": 529}}, id="529"),
        pytest.param({"malformed": "cut", "text": "Long enough to be cut somewhere."}, id="cut stream"),
        pytest.param({"malformed": "error_event"}, id="error inside the stream"),
        pytest.param({"malformed": "garbage"}, id="garbage"),
        pytest.param({"stall": "mid_stream"}, id="silence"),
    ],
)
async def test_a_passing_fault_is_asked_again(fault: dict[str, Any]) -> None:
    status, answer, _ = await ask(scripted({"text": "Hello.", **fault, "fault_times": 2}))
    assert (status, answer["content"][0]["text"]) == (200, fault.get("text", "Hello."))


@pytest.mark.parametrize(
    ("fault", "status", "calls", "words"),
    [
        pytest.param({"http": {"status": 500}}, 500, 4, "status 500", id="500 for ever"),
        pytest.param({"http": {"status": 403, "body": "<html>"}}, 403, 1, "ANTHROPIC_BASE_URL", id="403 of a proxy"),
        pytest.param({"malformed": "html"}, 501, 1, "ANTHROPIC_BASE_URL", id="a web page"),
        pytest.param({"http": {"status": 302, "headers": {"location": "/"}}}, 501, 1, "status 302", id="redirect"),
        pytest.param({"stall": "before_first_byte"}, 502, 4, "did not answer", id="never an answer"),
    ],
)
async def test_a_lasting_fault_is_an_error_the_cli_understands(fault: dict[str, Any], status: int, calls: int, words: str) -> None:
    model = scripted(fault)
    got, answer, _ = await ask(model)
    assert (got, answer["type"], len(model.received)) == (status, "error", calls)
    assert words in answer["error"]["message"]


async def test_a_wrong_key_is_not_repeated_nor_shown() -> None:
    status, answer, _ = await ask(scripted({"text": "Hello."}), key="not-this-one")
    assert status == 401
    assert "not-this-one" not in json.dumps(answer)


async def test_a_call_is_broken_off_when_the_work_has_ended() -> None:
    """Nobody waits for its answer any more."""
    model = scripted({"stall": "before_first_byte"})
    async with serve(model) as server, forward_to(ModelEndpoint(base_url=server.base_url, headers={"x-api-key": "k"})) as calls:
        waiting = asyncio.create_task(calls.call("/v1/messages", {}, BODY))
        while not model.received:
            await asyncio.sleep(0.01)
        calls.end()
        status, answer, _ = await asyncio.wait_for(waiting, 2)
        assert (status, "ended" in answer["error"]["message"]) == (400, True)
        assert (await calls.call("/v1/messages", {}, BODY))[0] == 400
    assert len(model.received) == 1


@pytest.mark.parametrize(
    ("variables", "base_url", "headers"),
    [
        pytest.param({"ANTHROPIC_API_KEY": "k"}, "https://api.anthropic.com", {"x-api-key": "k"}, id="key"),
        pytest.param({"ANTHROPIC_AUTH_TOKEN": "t"}, "https://api.anthropic.com", {"authorization": "Bearer t"}, id="token"),
        pytest.param({"ANTHROPIC_BASE_URL": "http://gw:8/x/"}, "http://gw:8/x", {}, id="gateway with a key of its own"),
        pytest.param({"ANTHROPIC_UNIX_SOCKET": "/run/m"}, "http://model.internal", {}, id="socket"),
        pytest.param(
            {"ANTHROPIC_API_KEY": "k\n", "ANTHROPIC_CUSTOM_HEADERS": "X-A: 1\n\nX-B:2"},
            "https://api.anthropic.com",
            {"x-a": "1", "x-b": "2", "x-api-key": "k"},
            id="headers of one's own",
        ),
    ],
)
def test_an_endpoint_is_read_from_the_environment(variables: dict[str, str], base_url: str, headers: dict[str, str]) -> None:
    endpoint = find_endpoint(variables)
    assert (endpoint.base_url, dict(endpoint.headers)) == (base_url, headers)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        pytest.param({}, "ANTHROPIC_API_KEY", id="nothing"),
        pytest.param({"ANTHROPIC_API_KEY": "a\x00b"}, "ANTHROPIC_API_KEY", id="key with NUL"),
        pytest.param({"ANTHROPIC_BASE_URL": "gw/secret"}, "ANTHROPIC_BASE_URL", id="no scheme"),
        pytest.param({"ANTHROPIC_BASE_URL": "https://u:secret@gw"}, "ANTHROPIC_BASE_URL", id="credentials in the address"),
        pytest.param({"ANTHROPIC_BASE_URL": "https://gw:secret"}, "ANTHROPIC_BASE_URL", id="port"),
        pytest.param({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_CUSTOM_HEADERS": "secret"}, "ANTHROPIC_CUSTOM_HEADERS", id="header"),
    ],
)
def test_an_endpoint_that_makes_no_sense_is_refused_without_showing_it(variables: dict[str, str], named: str) -> None:
    with pytest.raises(EndpointUnusable, match=named) as caught:
        find_endpoint(variables)
    assert "secret" not in str(caught.value)


def test_the_key_is_not_in_the_representation() -> None:
    assert "hidden" not in repr(find_endpoint({"ANTHROPIC_API_KEY": "hidden"}))
