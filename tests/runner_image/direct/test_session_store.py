"""The stored session: whole or not at all, and never trusted blindly."""

import json
import stat
from pathlib import Path

import pytest

from runner_image.direct import SessionState, SessionStore
from runner_image.places import Places


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "new" / "session.json")
    state = SessionState(session_id="s-1", team="birds", initialized=True, conversation_turns=5, metadata={"note": "ä\n"})
    assert store.save(state)
    assert store.exists()
    assert store.load() == state
    assert list(json.loads(store.path.read_text())) == ["session_id", "team", "initialized", "conversation_turns", "metadata"]
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    store = SessionStore(str(tmp_path / "session.json"))
    assert (store.exists(), store.load(), store.clear()) == (False, None, True)


def test_cleared_is_gone(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "session.json")
    store.save(SessionState(session_id="s"))
    assert store.clear()
    assert not store.exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"session_id": "a', id="cut"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"{}", id="no session"),
        pytest.param(b'{"session_id": 5}', id="wrong type"),
        pytest.param(b'{"session_id": "a", "conversation_turns": -1}', id="negative"),
        pytest.param(b'{"session_id": "a", "metadata": []}', id="metadata is a list"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"\xff\xfe", id="bytes"),
    ],
)
def test_a_damaged_file_counts_as_none_but_is_there(tmp_path: Path, content: bytes) -> None:
    store = SessionStore(tmp_path / "session.json")
    store.path.write_bytes(content)
    assert store.load() is None
    assert store.exists()


def test_a_state_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "session.json")
    store.save(SessionState(session_id="old"))
    assert not store.save(SessionState(session_id="new", metadata={"x": object()}))
    loaded = store.load()
    assert loaded is not None
    assert loaded.session_id == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["session.json"]


def test_a_folder_in_the_way_is_told(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "session.json")
    (tmp_path / "session.json").mkdir()
    assert not store.save(SessionState(session_id="s"))
    assert not store.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["session.json"]


def test_the_default_lies_in_the_runners_folder() -> None:
    assert SessionStore().path.is_relative_to(Places.state)
