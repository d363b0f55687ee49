"""The desk inside a sandbox: pieces of a call's events, orders that make no sense, conversations that travel."""

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest

from runner_image.direct import SessionState, SessionStore
from runner_image.direct.desk import Desk, main
from runner_image.direct.detached import DetachedCalls
from runner_image.direct.errors import BadOrder, SandboxUnusable
from runner_image.direct.ground import only_call
from runner_image.direct.memory import export_memory, import_memory
from runner_image.places import Places

SESSION = "c643cf63-2fa4-4642-aef1-061d800840a5"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(state=tmp_path / "state", workspace=tmp_path / "workspace")


def ended_call(places: Places, written: bytes) -> DetachedCalls:
    """A call that has written this and is over."""
    folder = places.state / "calls" / "c"
    folder.mkdir(parents=True)
    (folder / "alive").touch()
    (folder / "events").write_bytes(written)
    return DetachedCalls(places)


@pytest.mark.parametrize(
    ("written", "lines", "left_out"),
    [
        pytest.param(b"", [], 0, id="nothing"),
        pytest.param(b"one\ntwo\n", [b"one", b"two"], 0, id="two"),
        pytest.param(b"one\nbroken o", [b"one"], 8, id="broken off"),
        pytest.param(b"x" * 50 + b"\ntwo\n", [b"two"], 51, id="longer than a piece"),
        pytest.param(b"one\n" + b"x" * 50 + b"\n\ntwo\n", [b"one", b"", b"two"], 51, id="between others"),
        pytest.param(b"x" * 10 + b"\n", [], 11, id="just longer"),
        pytest.param(b"x" * 50, [], 50, id="long and broken off"),
    ],
)
def test_a_log_is_read_in_pieces_to_its_end(places: Places, written: bytes, lines: list[bytes], left_out: int) -> None:
    calls = ended_call(places, written)
    found: list[bytes] = []
    after = lost = 0
    while True:
        piece = calls.read("c", after, 10, 0)
        found += piece.lines
        after, lost = piece.next, lost + piece.left_out
        if piece.ended:
            break
    assert (found, lost, after) == (lines, left_out, len(written))


@pytest.mark.parametrize("after", [-5, 0, 10**9], ids=["before", "begin", "behind"])
def test_a_place_outside_the_log_is_moved_into_it(places: Places, after: int) -> None:
    assert ended_call(places, b"one\n").read("c", after, 100, 0).ended


@pytest.mark.parametrize(
    "order",
    [
        pytest.param({}, id="empty"),
        pytest.param({"op": "dance"}, id="unknown"),
        pytest.param({"op": "poll", "call": "../x", "after": 0}, id="climbing name"),
        pytest.param({"op": "poll", "call": 5}, id="no name"),
        pytest.param({"op": "start", "call": "c", "kind": "dance"}, id="unknown kind"),
        pytest.param({"op": "start", "call": "c", "kind": "chat"}, id="parts missing"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(places: Places, order: dict[str, Any]) -> None:
    with pytest.raises(BadOrder):
        Desk(places).answer(order)


@pytest.mark.parametrize("line", ["", "!", "W10=", "eyJ"], ids=["empty", "no base64", "a list", "cut"])
def test_a_line_that_is_no_order_is_refused(line: str) -> None:
    with pytest.raises(BadOrder):
        main(line)


def test_a_sandbox_keeps_its_generation_and_refuses_orders_for_another(places: Places) -> None:
    first, _ = Desk(places).answer({"op": "status"})
    again, _ = Desk(places).answer({"op": "status", "generation": first["generation"]})
    other, _ = Desk(places).answer({"op": "clear", "generation": "other"})
    assert again == first == {"generation": first["generation"], "running": None, "last": None, "session": None}
    assert other == {"generation": first["generation"], "replaced": True}


def test_a_conversation_travels(tmp_path: Path) -> None:
    old, new = Places(state=tmp_path / "old"), Places(state=tmp_path / "new")
    transcript = old.agent_config / "projects" / "-workspace" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes(b'{"a": 1}\n')
    SessionStore(old.state / "session.json").save(SessionState(session_id=SESSION, team="birds", conversation_turns=3))
    packed = export_memory(old)
    assert packed is not None
    memory = {"session_id": SESSION, "team": "birds", "turns": 3, "transcript": packed.decode()}
    assert import_memory(new, memory)
    assert export_memory(new) == packed
    assert not import_memory(new, memory), "a conversation that is there is not overwritten"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"session_id": "../../x"}, id="climbing session"),
        pytest.param({"session_id": SESSION.upper()}, id="other spelling"),
        pytest.param({"turns": "3"}, id="turns"),
        pytest.param({"transcript": "?"}, id="no base64"),
        pytest.param({"transcript": "AAAA"}, id="not packed"),
        pytest.param({"transcript": base64.b64encode(zlib.compress(b"x" * 999)[:-4]).decode()}, id="cut"),
        pytest.param({"transcript": base64.b64encode(zlib.compress(bytes(65 << 20))).decode()}, id="bomb"),
    ],
)
def test_a_damaged_conversation_is_not_taken(places: Places, change: dict[str, Any]) -> None:
    sound = {"session_id": SESSION, "team": "t", "turns": 1, "transcript": base64.b64encode(zlib.compress(b"x")).decode()}
    with pytest.raises(ValueError, match="conversation|base64|padding"):
        import_memory(places, sound | change)
    assert not list(places.state.rglob("*.jsonl"))


def test_a_link_in_place_of_a_transcript_is_not_followed(places: Places) -> None:
    """The folder is the agent's to write."""
    folder = places.agent_config / "projects" / "-workspace"
    folder.mkdir(parents=True)
    (folder / f"{SESSION}.jsonl").symlink_to("/etc/passwd")
    SessionStore(places.state / "session.json").save(SessionState(session_id=SESSION))
    assert export_memory(places) is None


@pytest.mark.anyio
async def test_a_folder_too_deep_for_sockets_is_told_before_anything_is_made(tmp_path: Path) -> None:
    state = tmp_path / ("d" * 150)
    with pytest.raises(SandboxUnusable, match="with --state, of 90 bytes at most"):
        async with only_call(Places(state=state)):
            pass
    assert not state.exists()
