"""The direct path: an agent for one caller, without a service, a mailbox or a daemon.

`run_init` and `run_chat` write JSON events to standard output, one object per line, and remember the conversation between calls. They
are run through `executeCode` in a sandbox that can reach a model, or by hand as `python -m runner_image.direct`. The agent stands
behind the same wall as in a turn of the service, but here the model's key is in this process: where the sandbox has to be free of
secrets, the service and its mailbox are the way (docs/decisions/0001).
"""

from typing import TYPE_CHECKING

from runner_image.direct.events import (
    EventType,
    emit_confirm_request,
    emit_device_code,
    emit_done,
    emit_error,
    emit_event,
    emit_progress,
    emit_text,
    emit_tool_end,
    emit_tool_start,
    emit_warning,
)
from runner_image.direct.session_store import SessionState, SessionStore

if TYPE_CHECKING:
    from runner_image.direct.chat import run_chat
    from runner_image.direct.initialize import run_init

__all__ = [
    "EventType",
    "SessionState",
    "SessionStore",
    "emit_confirm_request",
    "emit_device_code",
    "emit_done",
    "emit_error",
    "emit_event",
    "emit_progress",
    "emit_text",
    "emit_tool_end",
    "emit_tool_start",
    "emit_warning",
    "run_chat",
    "run_init",
]


def __getattr__(name: str) -> object:
    """Import the two functions when they are asked for: the desk, executed several times a second, needs no event loop."""
    if name == "run_chat":
        from runner_image.direct.chat import run_chat

        return run_chat
    if name == "run_init":
        from runner_image.direct.initialize import run_init

        return run_init
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
