"""`SessionProxy`: conversations in the sandboxes of a pool, driven from outside through `POST /code/execute` alone.

That route answers only when an execution has ended, and a platform ends it after minutes. So a call is started as a process of its own in
the sandbox, and its events are fetched by short executions, each of which waits a while for new ones and says where to go on. All of
them may be repeated: a call is named here and started once, and events are fetched by position.
"""

import re
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import anyio
from pydantic import BaseModel, ConfigDict, Field

from context_client.direct.errors import BadSession
from context_client.direct.line import Lines, OneEndpoint, TokenSource
from context_client.direct.programs import Answer, ModelAccess, Order, StoredSession, program, read_answer, shown
from context_client.direct.stream import STOP_SECONDS, DirectSettings, EventStream, Known, busy
from context_client.embedded.provider import SandboxEndpoint, SandboxProvider

# what session pools take; a dot, a slash or a blank would be refused there with a puzzling message
_IDENTIFIER = re.compile(r"[A-Za-z0-9|\-&^%$#(){}\[\];<>]{4,128}")
_INIT_SECONDS = 900.0  # a person may have to sign in
_FOLLOW_SECONDS = 24 * 3600.0
_QUICK_SECONDS = 10.0
_MOST_KNOWN = 10_000
_MAX_MEMORY_CHARS = 8 * 1024 * 1024


class SessionStatus(BaseModel):
    """What a sandbox tells of its session."""

    model_config = ConfigDict(frozen=True)

    generation: str = Field(description="What tells this sandbox from one that takes its place.")
    replaced: bool = Field(description="True when it is another one than at the last call of this proxy.")
    running: str | None = Field(description="Call at work; `follow` takes it up.")
    session: StoredSession | None = Field(description="The stored conversation; None when there is none that can be read.")


class SessionProxy:
    """Conversations in sandboxes, many at a time and one call at a time in each; an async context manager.

    Args:
        place: A pool's endpoint, or a provider that has one for each session.
        model: How the agent reaches its model; by default as the image is set up.
        variables: More environment variables for calls, such as `CLAUDE_CODE_SIGN_IN`.
        token: Gives the pool's bearer token.
        upn: For providers that tell users apart.
        settings: How to ask.
    """

    def __init__(
        self,
        place: SandboxEndpoint | SandboxProvider,
        *,
        model: ModelAccess | None = None,
        variables: Mapping[str, str] | None = None,
        token: TokenSource | None = None,
        upn: str = "",
        settings: DirectSettings | None = None,
    ) -> None:
        self._settings = settings or DirectSettings()
        provider = OneEndpoint(place) if isinstance(place, SandboxEndpoint) else place
        self._lines = Lines(provider, upn=upn, token=token, patience=self._settings.patience)
        self._environment = dict(variables or {}) | (model or ModelAccess()).environment()
        self._known: dict[str, Known] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.move_on_after(5, shield=True):
            await self._lines.close()

    def init(self, session_id: str, team: str | None = None) -> EventStream:
        """Check that a conversation can be had: wall, CLI, model. Nothing is asked before the stream is iterated.

        Args:
            session_id: Identifier of the sandbox.
            team: Whose conversation it is.

        Raises:
            BadSession: No pool takes this identifier.
        """
        return self._begin(session_id, Order(kind="init", team=team, seconds=_INIT_SECONDS, environment=self._environment))

    def chat(self, session_id: str, message: str, team: str | None = None, *, seconds: float = 900.0) -> EventStream:
        """Give the agent a message; the conversation of the session goes on. Nothing is asked before the stream is iterated.

        Args:
            session_id: Identifier of the sandbox.
            message: What the user says.
            team: Whose conversation it is; another one than the stored one's begins a new conversation.
            seconds: How long the agent may work; not bounded by the time limit of a single execution.

        Raises:
            BadSession: No pool takes this identifier.
        """
        order = Order(kind="chat", message=message, team=team, seconds=seconds, environment=self._environment)
        return self._begin(session_id, order)

    async def follow(self, session_id: str) -> EventStream | None:
        """Take up the call at work, or the last one, from its first event on; None when there is none. Leaving does not stop it.

        Raises:
            DirectError: The sandbox cannot be asked.
        """
        head = (await self._ask(session_id, {"op": "status"}, _QUICK_SECONDS)).head
        call = head.running or head.last
        if call is None:
            return None
        return EventStream(partial(self._ask, session_id), self._settings, call=call, seconds=_FOLLOW_SECONDS)

    async def status(self, session_id: str) -> SessionStatus:
        """Ask what the sandbox remembers; a pool gives an empty one to an identifier that has none.

        Raises:
            DirectError: The sandbox cannot be asked.
        """
        head = (await self._ask(session_id, {"op": "status"}, _QUICK_SECONDS)).head
        known = self._known.get(session_id)
        replaced = known is not None and known.generation not in ("", head.generation)
        return SessionStatus(generation=head.generation, replaced=replaced, running=head.running, session=head.session)

    async def stop(self, session_id: str) -> bool:
        """Stop the call at work; False if it could not be ended.

        Raises:
            DirectError: The sandbox cannot be asked.
        """
        running = (await self._ask(session_id, {"op": "status"}, _QUICK_SECONDS)).head.running
        return running is None or (await self._ask(session_id, {"op": "stop", "call": running}, STOP_SECONDS)).head.stopped

    async def clear(self, session_id: str) -> bool:
        """Forget the conversation; the files of the workspace stay. False if it could not be removed.

        Raises:
            SessionBusy: A call is at work.
            DirectError: The sandbox cannot be asked.
        """
        self._remembering(session_id).memory = None
        head = (await self._ask(session_id, {"op": "clear"}, _QUICK_SECONDS)).head
        if head.busy is not None:
            raise busy(head.busy)
        return head.cleared

    def _begin(self, session_id: str, order: Order) -> EventStream:
        _check(session_id)
        call = uuid.uuid4().hex
        start = order.to_wire(call)
        known = self._remembering(session_id)
        if known.generation:
            start["generation"] = known.generation
        asking = partial(self._ask, session_id)
        return EventStream(
            asking,
            self._settings,
            call=call,
            seconds=order.seconds,
            start=start,
            known=known,
            on_end=partial(self._keep, session_id) if order.kind == "chat" and self._settings.most_remembered else None,
        )

    async def _keep(self, session_id: str) -> None:
        """Keep what was said, as the sandbox packs it; a conversation that cannot be carried is not kept."""
        answer = await self._ask(session_id, {"op": "memory"}, _QUICK_SECONDS)
        known, session = self._remembering(session_id), answer.head.session
        known.memory = None
        if session is not None and len(answer.lines) == 1 and len(answer.lines[0]) <= _MAX_MEMORY_CHARS:
            known.memory = {"session_id": session.session_id, "team": session.team, "turns": session.turns, "transcript": answer.lines[0]}
        remembered = [other for other in self._known.values() if other.memory is not None]
        for oldest in remembered[: -self._settings.most_remembered]:
            oldest.memory = None

    def _remembering(self, session_id: str) -> Known:
        """Return what is known of a session, moved to the end as the one used last."""
        known = self._known[session_id] = self._known.pop(session_id, Known())
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return known

    async def _ask(self, session_id: str, order: dict[str, Any], wait_seconds: float) -> Answer:
        _check(session_id)
        return read_answer(await self._lines.ask(session_id, program(order), wait_seconds))


def _check(session_id: str) -> None:
    if not _IDENTIFIER.fullmatch(session_id):
        raise BadSession(f"{shown(session_id)!r} is no identifier of a session: use 4 to 128 letters, digits and hyphens.")
