"""`run_init`: finds out, before the first message, whether a conversation can be had in this sandbox."""

import asyncio
import os

from runner_image.direct.endpoint import find_endpoint
from runner_image.direct.events import emit_done, emit_error, emit_progress
from runner_image.direct.ground import cli_version, only_call, raise_wall
from runner_image.direct.session_store import DEFAULT_TEAM, SessionState, SessionStore, direct_places
from runner_image.direct.sign_in import sign_in
from runner_image.errors import RunnerError
from runner_image.places import Places

_ALL_SECONDS = 90.0


async def run_init(team: str | None = None, *, places: Places | None = None) -> None:
    """Check the wall, the agent's program and the model's endpoint, telling each as a `progress` event, and end with `done` or `error`.

    Where the image asks for a sign-in, that comes first, and its code is told as `device_code`.

    Args:
        team: Whose conversation it is; without one the stored conversation's team, else "default".
        places: Folders to use; by default those of the runner's image.
    """
    await initialize(team, places or direct_places())


async def initialize(team: str | None, places: Places) -> bool:
    """Do the work of :func:`run_init`; say whether everything is in order."""
    try:
        async with only_call(places):
            await sign_in(os.environ)
            async with asyncio.timeout(_ALL_SECONDS):
                await _check(places)
                state = await asyncio.to_thread(_remember, SessionStore(places.state / "session.json"), team)
            emit_done(state.session_id, state.conversation_turns, team=state.team)
            return True
    except BrokenPipeError:
        raise  # nobody listens: an event would fail the same way
    except RunnerError as error:
        emit_error(str(error))
    except TimeoutError:
        emit_error(f"The checks were not done after {_ALL_SECONDS:.0f} s: the machine is too busy, or something hangs. Call again.")
    except OSError as error:
        emit_error(f"Something of the sandbox failed: {error}")
    return False


async def _check(places: Places) -> None:
    emit_progress("wall", "Trying out the wall around the agent.")
    wall = await raise_wall(places)
    emit_progress("wall", f"The wall stands: {wall.describe().words}.")
    version = await cli_version(wall)
    emit_progress("cli", f"The agent's program starts: version {version}.", version=version)
    endpoint = find_endpoint(os.environ)
    from runner_image.direct.forwarding import forward_to  # imports an HTTP client, which emitting events must not wait for

    async with forward_to(endpoint) as calls:
        await calls.probe()
    model = os.environ.get("ANTHROPIC_MODEL", "")
    emit_progress("model", f"A model endpoint is configured and answers: {endpoint.name}.", **({"model": model} if model else {}))


def _remember(store: SessionStore, team: str | None) -> SessionState:
    known = store.load()
    if known is None or (team is not None and known.team != team):
        known = SessionState(session_id="", team=team or DEFAULT_TEAM)
    known.initialized = True
    if not store.save(known):
        raise OSError(f"the session cannot be stored in {str(store.path)!r}; look at the folder's rights and space")
    return known
