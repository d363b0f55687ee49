"""The conversation as one piece of text, so that a caller can keep it and give it to the sandbox that takes this one's place.

Only what was said: the agent's transcript and the stored session. The files of the workspace are not part of it. Everything here blocks.
"""

import base64
import uuid
import zlib
from typing import Any

from runner_image.direct.session_store import SessionState, SessionStore
from runner_image.places import Places

_PROJECT = "-workspace"
_MAX_TEXT_BYTES = 8 * 1024 * 1024
_MAX_TRANSCRIPT_BYTES = 64 * 1024 * 1024


def export_memory(places: Places) -> bytes | None:
    """Return the transcript of the stored conversation, packed as ASCII; None when there is none, or it is too large to be carried."""
    state = SessionStore(places.state / "session.json").load()
    if state is None or not _is_session(state.session_id):
        return None
    found = [path for path in places.agent_config.glob(f"projects/*/{state.session_id}.jsonl") if path.is_file() and not path.is_symlink()]
    if not found or found[0].stat().st_size > _MAX_TRANSCRIPT_BYTES:
        return None
    packed = base64.b64encode(zlib.compress(found[0].read_bytes(), 6))
    return packed if len(packed) <= _MAX_TEXT_BYTES else None


def import_memory(places: Places, memory: dict[str, Any]) -> bool:
    """Put a conversation in place of none; False when there is one already.

    Raises:
        ValueError: What was given is damaged.
        OSError: It cannot be written.
    """
    store = SessionStore(places.state / "session.json")
    state = store.load()
    if state is not None and state.session_id:
        return False
    session_id, team, turns = memory["session_id"], memory["team"], memory["turns"]
    if not (_is_session(session_id) and isinstance(team, str) and isinstance(turns, int)):
        raise ValueError("the conversation to go on with has no session of the agent")
    unpacker = zlib.decompressobj()
    try:
        transcript = unpacker.decompress(base64.b64decode(memory["transcript"], validate=True), _MAX_TRANSCRIPT_BYTES)
    except zlib.error as error:
        raise ValueError(f"the conversation to go on with is damaged: {error}") from error
    if not unpacker.eof:
        raise ValueError("the conversation to go on with is cut or too large")
    folder = places.agent_config / "projects" / _PROJECT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{session_id}.jsonl").write_bytes(transcript)
    return store.save(SessionState(session_id=session_id, team=team, conversation_turns=turns))


def _is_session(text: object) -> bool:
    """Say whether a text may become part of a path."""
    try:
        return isinstance(text, str) and str(uuid.UUID(text)) == text
    except ValueError:
        return False
