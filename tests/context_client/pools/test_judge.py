"""Whose answer it is, and what identifiers look like."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_client.pools import IdentifierRefused
from context_client.pools.identifiers import identifier_problem, pool_identifier
from context_client.pools.judge import Verdict, judge, retry_after
from tests.context_client.pools.conftest import Pool, World, serving
from tests.context_client.pools.test_provider import run

NESTED = {"error": {"code": "Anything", "message": "words"}}
CONTAINER = {"detail": "the container's own words"}
FULL = {"code": "SessionsCountExceedsLimit", "message": "words"}


@pytest.mark.parametrize(
    ("status", "said", "has_slot", "verdict"),
    [
        pytest.param(200, FULL, False, "answer", id="success"),
        pytest.param(429, FULL, False, "full", id="429 full"),
        pytest.param(429, FULL, True, "full", id="429 full, evicted"),
        pytest.param(429, None, False, "full", id="429 without words"),
        pytest.param(429, None, True, "throttled", id="429 to one with a slot"),
        pytest.param(500, FULL, True, "full", id="500 full"),
        pytest.param(500, NESTED, False, "full", id="500 of the pool, new session"),
        pytest.param(500, NESTED, True, "answer", id="500 of the pool, known session"),
        pytest.param(500, None, False, "full", id="500 without words, new session"),
        pytest.param(500, CONTAINER, False, "answer", id="500 of the container"),
        pytest.param(404, FULL, False, "full", id="404 full"),
        pytest.param(404, CONTAINER, False, "answer", id="404 of the container"),
        pytest.param(401, CONTAINER, True, "token", id="401"),
        pytest.param(403, NESTED, True, "role", id="403 of the pool"),
        pytest.param(403, CONTAINER, True, "answer", id="403 of the container"),
        pytest.param(400, {"error": {"code": "InvalidLengthOfSessionIdentifier"}}, False, "identifier", id="identifier"),
        pytest.param(400, CONTAINER, False, "answer", id="400 of the container"),
        pytest.param(503, None, False, "away", id="503"),
        pytest.param(500, [1], False, "answer", id="no object"),
        pytest.param(500, {"error": {"code": 7}}, True, "answer", id="a code that is no text"),
    ],
)
def test_whose_answer_it_is(status: int, said: Any, has_slot: bool, verdict: Verdict) -> None:
    body = b"" if said is None else json.dumps(said).encode()
    assert judge(status, {}, body, has_slot=has_slot) == verdict


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3), ("0", 0), ("99999999", 3600), ("-1", None), ("nan", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)],
)
def test_retry_after_is_read_in_seconds(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds


@given(upn=st.text(), session_id=st.text(max_size=200))
def test_every_identifier_is_one_that_pools_take(upn: str, session_id: str) -> None:
    made = pool_identifier(b"k" * 16, upn=upn, session_id=session_id)
    assert identifier_problem(made) is None
    assert made != pool_identifier(b"l" * 16, upn=upn, session_id=session_id)
    assert made != pool_identifier(b"k" * 16, upn=upn + session_id + "x", session_id="")


@pytest.mark.parametrize("bad", ["abc", "a" * 129, "with_underscore", "with.dot", "with/slash", "with blank", "ünicode", "１２３４"])
def test_what_pools_do_not_take_is_known(bad: str) -> None:
    assert identifier_problem(bad) is not None


@pytest.mark.anyio
async def test_a_refused_identifier_is_our_own_mistake(world: World) -> None:
    async def refusing(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        body = b'{"error": {"code": "InvalidLengthOfSessionIdentifier", "message": ""}}'
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-length", str(len(body)).encode())]})
        await send({"type": "http.response.body", "body": body})

    async with serving(refusing) as url:
        pool = Pool(None, url, None)  # type: ignore[arg-type]
        async with world.provider(pool) as sessions, world.client(sessions, "one") as client:
            with pytest.raises(IdentifierRefused, match="'pool-0' does not take.*invalidlength.*report"):
                await run(client, "pass")
