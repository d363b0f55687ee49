"""The direct path in the image: the smoke commands of docs/direct.md, and a conversation with the real CLI behind the wall there."""

import json

import httpx
import pytest

from context_client.direct.line import OneEndpoint
from context_client.embedded.provider import SandboxEndpoint
from tests.context_client.direct.conftest import Places
from tests.context_client.direct.journey import from_init_to_clear
from tests.context_client.direct.page import BODIES, PROGRAMS
from tests.images.building import Container, engine_call

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # the first one to ask builds the image


def test_the_smoke_commands_print_what_the_page_says(engine: str, image: str) -> None:
    """As on the page: a plain `docker run`, without the options of a hardened container."""
    closed = ("--rm", "--network", "none")
    for program, says in PROGRAMS:
        ended = engine_call(engine, "run", *closed, image, "python", "-c", program)
        assert says in ended.stdout, ended.stderr


async def test_the_calls_of_the_route_answer_what_the_page_says(client: httpx.AsyncClient) -> None:
    for body, says in BODIES:
        answer = (await client.post("/code/execute", json=json.loads(body))).text
        assert says in answer


async def test_a_conversation_in_a_container(sandbox: Container, anyio_backend: str) -> None:
    async with httpx.AsyncHTTPTransport(uds=str(sandbox.socket)) as transport:
        places = Places(OneEndpoint(SandboxEndpoint(base_url="http://sandbox", transport=transport)))
        await from_init_to_clear(places, "container-1")
