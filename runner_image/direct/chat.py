"""`run_chat`: one message of a conversation, from the caller's words to the agent's, without a service."""

import asyncio

from runner_image.direct.events import emit_error
from runner_image.direct.ground import only_call
from runner_image.direct.session_store import direct_places
from runner_image.errors import AgentError, RunnerError
from runner_image.places import Places

DEFAULT_SECONDS = 900.0
"""How long the agent may work on one message."""

_MAX_SECONDS = 24 * 3600.0
_GRACE_SECONDS = 60.0


async def run_chat(message: str, team: str | None = None, *, places: Places | None = None, seconds: float = DEFAULT_SECONDS) -> None:
    """Give the agent a message, going on with the stored conversation, and write what happens as events, the last `done` or `error`.

    Args:
        message: What the user says.
        team: Whose conversation it is. Another team than the stored one begins a new conversation; without one the stored one's goes on.
        places: Folders to use; by default those of the runner's image.
        seconds: How long the agent may work before it is stopped; the conversation can be taken up again afterwards.
    """
    await chat(message, team, places or direct_places(), seconds)


async def chat(message: str, team: str | None, places: Places, seconds: float) -> bool:
    """Do the work of :func:`run_chat`; say whether the message was answered."""
    seconds = min(max(seconds, 1.0), _MAX_SECONDS)
    try:
        if not message.strip():
            raise AgentError("The message is empty. Say what should be done.")
        async with asyncio.timeout(seconds + _GRACE_SECONDS), only_call(places):
            from runner_image.direct.conversation import Conversation  # more than a second, which run_init need not wait for

            return await Conversation(places, seconds).answer(message, team)
    except BrokenPipeError:
        raise  # nobody listens: an event would fail the same way
    except RunnerError as error:
        emit_error(str(error))
    except TimeoutError:
        emit_error(f"The agent did not stop {_GRACE_SECONDS:.0f} s after its time limit of {seconds:.0f} s and was killed.")
    except OSError as error:
        emit_error(f"Something of the sandbox failed: {error}")
    return False
